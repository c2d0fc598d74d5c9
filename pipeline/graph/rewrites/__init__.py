"""Rewrites of whole graphs."""
