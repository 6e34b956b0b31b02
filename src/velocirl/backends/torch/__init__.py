"""Torch backend: devices whose arrays are tensors, on CPU and GPU. Imported only where torch is used."""
