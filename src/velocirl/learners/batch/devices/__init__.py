"""The devices of batches: the interpreter, torch on the CPU, CUDA."""
