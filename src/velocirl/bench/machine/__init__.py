"""What the machine is and can do at most, and what else it was doing."""
