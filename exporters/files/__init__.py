"""Read, count and verify exported files."""
