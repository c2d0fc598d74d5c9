"""Rewrites of whole graphs; each returns a new model and leaves the one that it got."""
