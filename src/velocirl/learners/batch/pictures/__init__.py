"""Pictures that are kept frame by frame, in memories and in rollouts."""
