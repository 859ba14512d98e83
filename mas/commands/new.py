"""x"""


def new() -> None:
    """Write a scenario, role, algorithm or team of your own to begin with, and its test."""
