"""Helpers around the operating system and the Python runtime."""
