"""What a person watches while a run goes: the display, phases, resource use, a heartbeat for others to read."""
