"""Actions to safe poses in time: pose algebra, the plan, the envelope."""
