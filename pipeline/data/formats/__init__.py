"""The formats in which samples can be stored, one module per format."""
