"""Quantize a float graph so that it computes in 8 bits."""
