"""Benchmarks; README.md lists them."""
