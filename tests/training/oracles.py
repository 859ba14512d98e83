"""The golden numbers of the formula sheet."""

import json
from pathlib import Path
from typing import Any

import pytest

ORACLES: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data" / "oracles.json").read_text())


def near(values: Any) -> Any:
    """The oracles have six decimals."""
    return pytest.approx(values, abs=1e-6)
