"""A simulated UR5e controller and work cell, for demo and tests."""
