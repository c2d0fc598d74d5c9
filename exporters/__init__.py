"""Write pruned models as ONNX files, read them back and verify them. They use only NumPy, onnx and onnxruntime."""
