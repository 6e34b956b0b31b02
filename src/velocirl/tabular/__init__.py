"""Learning with tables: the tables themselves, the loop, the agent, what runs it, and planning with a known model."""
