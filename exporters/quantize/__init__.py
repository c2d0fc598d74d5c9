"""From a float graph to one that computes in 8 bits: which layers, in which ranges, and proof of the weights."""
