"""Where functions run: plain Python, CPU threads, CUDA."""
