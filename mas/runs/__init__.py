"""Runs in directories: from a configuration to what is trained, its files, and its report."""
