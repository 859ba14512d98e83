"""A sandbox for model-written Python programs."""
