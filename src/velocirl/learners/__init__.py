"""What runs the stages of any algorithm: on CPU threads, with torch, as CUDA graphs, or in plain Python."""
