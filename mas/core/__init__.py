"""Vocabulary and contracts: everything else depends on this package, and it on nothing of mas."""
