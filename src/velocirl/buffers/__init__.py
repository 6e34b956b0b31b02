"""Storage of experience: rollout records, replay buffers and datasets."""
