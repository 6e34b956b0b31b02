"""Export of policies as C, ONNX or JSON, and their model cards."""
