"""Decode, collect and augment images."""
