"""What runs the copies of an environment: one core, threads, processes, MPI ranks, a GPU; found by name."""
