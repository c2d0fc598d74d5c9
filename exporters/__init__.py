"""Write pruned models as ONNX files, and verify them.

The package uses only NumPy, onnx and onnxruntime, not torch.
"""
