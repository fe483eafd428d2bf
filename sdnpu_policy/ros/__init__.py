"""ROS 2 nodes, messages, parameters and diagnostics."""
