"""The paper's settings, one TOML file per network."""
