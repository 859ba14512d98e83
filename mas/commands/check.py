"""x"""


def check() -> None:
    """Run the contract suites on scenarios, roles, algorithms and teams of your own."""
