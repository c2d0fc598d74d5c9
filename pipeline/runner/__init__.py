"""The order of the stages, and what happens between them."""
