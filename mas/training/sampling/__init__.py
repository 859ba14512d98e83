"""Samplers: how candidates are drawn, scored and grouped."""
