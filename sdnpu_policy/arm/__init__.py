"""The process that streams poses to the robot at 500 Hz."""
