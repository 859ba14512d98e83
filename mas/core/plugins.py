"""What installed packages offer by their entry points, and errors that name the package."""

from collections.abc import Collection
from importlib.metadata import EntryPoint, entry_points

from mas.core.errors import ConfigError


def offered_names(group: str) -> list[str]:
    """All names of a group, each once, in order."""
    return sorted({point.name for point in entry_points(group=group)})


def find_offer(kind: str, group: str, name: str) -> EntryPoint | None:
    """The entry point of a name, None without one; nothing is imported.

    Args:
        kind: what the group has, for errors: `scenario`.

    Raises:
        ConfigError: several packages offer the name.
    """
    points = [point for point in entry_points(group=group) if point.name == name]
    if len(points) > 1:
        packages = " and ".join(sorted(f"{package_of(point)} ({point.value})" for point in points))
        raise ConfigError(
            f"{kind} {name!r} is offered by {len(points)} installed packages: {packages}. Uninstall all but one"
        )
    return points[0] if points else None


def load_offer(kind: str, point: EntryPoint) -> object:
    """What an entry point names, imported.

    Raises:
        ConfigError: importing it raises, or there is no such thing.
    """
    try:
        return point.load()
    except (Exception, SystemExit) as error:  # another package's code: whatever it is, it is that package's
        raise ConfigError(
            f"{kind} {point.name!r} comes with the package {package_of(point)}, and its {point.value} cannot be "
            f"loaded: {type(error).__name__}: {error}"
        ) from error


def package_of(point: EntryPoint) -> str:
    """The name of the package that has the entry point."""
    return point.dist.name if point.dist is not None else "unknown"


def hidden_offers(kind: str, group: str, shipped: Collection[str]) -> list[str]:
    """A sentence for each entry point that cannot be reached, as mas itself has its name."""
    return [
        f"{kind} {point.name!r} of the package {package_of(point)} cannot be chosen: mas has one of this name"
        for point in entry_points(group=group)
        if point.name in shipped
    ]
