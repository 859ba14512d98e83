"""The numbers of `oracles.json` (its sections are those of the formula sheet) for tests of single parts."""

import json
from pathlib import Path
from typing import Any

import pytest

ORACLES: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data" / "oracles.json").read_text())


def near(values: Any) -> Any:
    """The oracles have six decimals; lists of lists may be of different lengths."""
    if isinstance(values, list) and values and isinstance(values[0], list):
        return [near(row) for row in values]
    return pytest.approx(values, abs=1e-6)
