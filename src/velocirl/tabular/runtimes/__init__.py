"""Runtimes, found by name: one core, threads, processes, MPI ranks, a GPU."""
