"""Losses: pure functions over tensors."""
