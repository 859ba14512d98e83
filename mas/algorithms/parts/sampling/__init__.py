"""Which episodes and groups are worth training on, and where trees branch. Free of torch."""
