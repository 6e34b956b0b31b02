"""Live view of training: displays, phases, resource use, and a heartbeat file for other programs."""
