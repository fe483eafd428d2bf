"""Quality of service of the node's topics (REP-2003 for sensors)."""

from __future__ import annotations

from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy

RELIABLE_LATEST = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE)
"""Targets and plans: the newest alone counts, and planners subscribe reliably."""

LATCHED = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL)
"""State: whoever comes late gets the last one."""

SENSOR_LATEST = QoSProfile(depth=1, history=HistoryPolicy.KEEP_LAST, reliability=ReliabilityPolicy.BEST_EFFORT)
"""Images: the newest alone, from reliable and best-effort cameras alike."""
