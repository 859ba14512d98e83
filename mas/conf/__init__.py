"""Hydra presets; they only override the defaults of `mas.config`."""
