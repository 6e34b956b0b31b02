"""Processes that train one agent together: rendezvous and communication (MPI, torch.distributed)."""
