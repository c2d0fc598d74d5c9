"""A planned comparison of pruning methods, each at its own best learning rate. PLAN.md comes first."""
