"""Write pruned models as ONNX files, and verify them.

The package needs only NumPy, onnx and onnxruntime.
"""
