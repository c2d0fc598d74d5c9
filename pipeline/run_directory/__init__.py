"""The run directory: its files, its manifest and its log."""
