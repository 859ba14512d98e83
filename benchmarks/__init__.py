"""Benchmarks: what mas is measured against, in one run on one machine."""
