"""Carrying a policy to where it runs: as C, ONNX or JSON, and its model card."""
