"""Turn a model with zeros into files: encodings, export graphs, int8 and sparse operators."""
