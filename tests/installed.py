"""Scenarios whose packages are installed here; the others' own tests are skipped with the reason."""

from mas.core.errors import MissingPackage
from mas.scenarios import SCENARIOS, build_scenario
from mas.scenarios.catalogue import sized


def _is_installed(name: str) -> bool:
    try:
        build_scenario(sized(name)).task("train", 0)
    except MissingPackage:
        return False
    return True


INSTALLED = {name: entry for name, entry in SCENARIOS.items() if _is_installed(name)}
