"""Load, check and prepare samples."""
