"""The result model: what stages measure and report.json holds."""
