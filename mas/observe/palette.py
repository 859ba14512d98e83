"""The colours of roles and other series, the same in every picture of a report."""

import re
from collections.abc import Mapping
from importlib import resources
from typing import Final

_SERIES = re.compile(r"--series-[0-7]: (#[0-9a-f]{6})")
LIGHT: Final = tuple(_SERIES.findall(resources.files("mas.observe").joinpath("palette.css").read_text("utf-8"))[:8])
"""Those of `palette.css` on white, and on the soft ground of conversations (#f1f3f6): contrast 4.6 or more; WCAG 2.2
asks for 4.5. The same hues follow there for dark mode, on #1f252d: contrast 6.3 or more."""


def role_numbers(roles: Mapping[str, str]) -> dict[str, int]:
    """The number of each role's colour, from agent -> role; after the last colour they begin again."""
    return {role: number for number, role in enumerate(dict.fromkeys(roles.values()))}


def agent_colours(roles: Mapping[str, str]) -> dict[str, str]:
    """The colour of each agent's role on white, from agent -> role."""
    numbers = role_numbers(roles)
    return {agent: LIGHT[numbers[role] % len(LIGHT)] for agent, role in roles.items()}
