"""The stages of the pipeline, one module or folder each, named by its verb."""
