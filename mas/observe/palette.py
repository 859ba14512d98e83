"""The colours of roles and other series, the same in every picture of a report."""

from collections.abc import Mapping
from typing import Final

LIGHT: Final = ("#2c69d2", "#ac5400", "#117c4b", "#9a45c9", "#c5354d", "#057987", "#84691d", "#5b6470")
"""On white, and on the soft ground of conversations (#f1f3f6): contrast 4.6 or more, of which WCAG 2.2 asks 4.5."""
DARK: Final = ("#7aa7ff", "#ffa94d", "#5cd69a", "#d08bf5", "#ff7d8f", "#4fd0e0", "#d9bd63", "#aab4c0")
"""The same hues in dark mode, on #1f252d: contrast 6.3 or more."""


def role_numbers(roles: Mapping[str, str]) -> dict[str, int]:
    """The number of each role's colour, from agent -> role; after the last colour they begin again."""
    return {role: number for number, role in enumerate(dict.fromkeys(roles.values()))}


def agent_colours(roles: Mapping[str, str]) -> dict[str, str]:
    """The colour of each agent's role on white, from agent -> role."""
    numbers = role_numbers(roles)
    return {agent: LIGHT[numbers[role] % len(LIGHT)] for agent, role in roles.items()}
