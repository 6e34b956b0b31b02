"""Torch: devices whose arrays are tensors, on the CPU and on a GPU. Imported when somebody asks for torch."""
