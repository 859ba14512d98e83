"""The page on bridges: its examples on games run, its ids open, its numbers are those of the code."""

import re
from importlib.util import find_spec
from typing import Any

import pytest
from pages import blocks, read

from mas.scenarios.bridges import PREFIX, open_bridge
from mas.scenarios.bridges.gymnasium_games import GAMES as GYMNASIUM
from mas.scenarios.bridges.jaxmarl_games import GAMES as JAXMARL
from mas.scenarios.bridges.open_spiel import GAMES as OPEN_SPIEL
from mas.scenarios.bridges.pettingzoo_games import GAMES as PETTINGZOO

PAGE = "docs/bridges.md"
PACKAGES = {"gymnasium": "gymnasium", "jaxmarl": "jaxmarl", "open_spiel": "pyspiel", "pettingzoo": "pettingzoo"}


@pytest.mark.skipif(
    not all(map(find_spec, ("pyspiel", "pettingzoo"))), reason="OpenSpiel and PettingZoo are not both installed"
)
def test_the_examples_on_games_run(capsys: pytest.CaptureFixture[str]) -> None:
    ours = [block.text for block in blocks(PAGE, "python") if re.search("open_spiel|pettingzoo", block.text)]
    for text in ours:
        names: dict[str, Any] = {}  # every example stands on its own
        exec(compile(text, PAGE, "exec"), names)  # noqa: S102 - our own page
    assert len(ours) == 3
    assert "'seat': 'player_0'" in capsys.readouterr().out


# JAX takes five seconds to be imported.
@pytest.mark.matrix("package", PACKAGES, default=[name for name in PACKAGES if name != "jaxmarl"])
def test_every_id_that_the_page_names_opens(package: str) -> None:
    named = {name for name in re.findall(rf"`({package}:[\w/-]+(?:\([^)]*\))?)`", read(PAGE)) if "NAME" not in name}
    assert len(named) > 3
    if find_spec(PACKAGES[package]) is None:
        pytest.skip(f"{package} is not installed")
    for name in named:
        assert open_bridge(name).spec.name == name


def test_the_page_counts_the_games_and_lists_those_of_pettingzoo() -> None:
    text = read(PAGE)
    assert f"{len(OPEN_SPIEL)} board" in text
    assert {f"pettingzoo:{name}" for name in PETTINGZOO} == set(
        re.findall(r"^\| `(pettingzoo:\w+/\w+_v\d)`", text, re.M)
    )
    assert f"{len(JAXMARL)} environments" in text
    assert {f"gymnasium:{name}" for name in GYMNASIUM} == set(re.findall(r"`(gymnasium:\w+-v\d)`", text))
    listed = set(re.findall(r"`jaxmarl:([\w/]+)`", text))
    assert {name for name in JAXMARL if not name.startswith("overcooked/")} < listed
    assert all(f"`{name.partition('/')[2]}`" in text for name in JAXMARL if name.startswith("overcooked/"))
    for name, game in PETTINGZOO.items():
        if name.startswith(("classic/chess", "classic/go")):
            assert f"{game.longest} moves" in text


@pytest.mark.parametrize("package", PACKAGES)
def test_every_bridge_has_its_extra_on_the_page(package: str) -> None:
    assert package in PREFIX
    assert f"`mas[{package.replace('_', '-')}]`" in read(PAGE)
