"""Properties of the machine: hardware, peak performance and background load."""
