"""Rewrites of a graph, one module each."""
