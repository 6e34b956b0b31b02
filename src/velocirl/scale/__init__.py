"""Processes that train one agent together: how they find each other, and what they say (MPI, torch.distributed)."""
