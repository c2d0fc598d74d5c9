"""Check a report against limits, and the report itself against its files."""
