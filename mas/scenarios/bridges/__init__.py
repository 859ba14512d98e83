"""Environments of other packages, each behind an extra of its own."""
