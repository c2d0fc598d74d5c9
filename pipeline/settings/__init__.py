"""Settings: their schema, defaults, files and checks."""
