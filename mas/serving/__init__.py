"""Engines: one base model, one adapter per role."""
