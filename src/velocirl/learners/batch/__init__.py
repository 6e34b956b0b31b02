"""The learner of whole batches: in plain Python, with torch on a CPU, or with torch and our kernels as CUDA graphs."""
