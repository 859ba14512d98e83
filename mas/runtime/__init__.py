"""Runs a plan over the bus."""
