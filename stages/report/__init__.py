"""Build report.json from the results of the stages, and render its pages."""
