"""`mas tools`: what a team's servers offer, as lines for a role."""

from pathlib import Path

import pytest
import yaml
from tool_teams import hostile
from typer.testing import CliRunner

from mas.cli import app

pytest.importorskip("mcp", reason="needs the extra mcp")


def test_what_servers_offer_is_printed_as_lines_for_a_role(tmp_path: Path) -> None:
    team = {"name": "t", "tools": {"bad": hostile("")}, "roles": {}, "edges": [], "output": "x"}
    path = tmp_path / "team.yaml"
    path.write_text(yaml.safe_dump(team))
    done = CliRunner().invoke(app, ["tools", str(path)])
    assert done.output == "bad.go: 'Goes. Arguments: x (string).'\n"
    path.write_text(yaml.safe_dump({**team, "tools": {}}))
    assert "names no servers under 'tools'" in str(CliRunner().invoke(app, ["tools", str(path)]).exception)
