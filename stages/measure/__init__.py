"""Measure exported files in onnxruntime."""
