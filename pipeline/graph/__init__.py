"""Read and edit ONNX graphs. NumPy and onnx are all they need."""
