"""Frame storage: image observations kept frame by frame, in replay buffers and in rollouts."""
