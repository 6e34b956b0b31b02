"""What runs an algorithm's stages: on CPU threads, with torch, as CUDA graphs, in plain Python; none knows an algorithm."""
