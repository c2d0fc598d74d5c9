"""Tasks: what labels and outputs mean, loss and metric."""
