"""What `mas scenarios` knows and measures."""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields
from io import StringIO
from pathlib import Path
from random import Random
from typing import Any

import pytest
from other_packages import put_package
from rich.console import Console

from mas.config.load import load_config
from mas.config.options import ScenarioOptions
from mas.core.environment import Environment, random_script
from mas.core.errors import ConfigError, MissingPackage
from mas.scenarios import SCENARIOS, build_scenario, find_scenario, registry
from mas.scenarios.catalogue import first_paragraph, profile, scenario_names, size_overrides, sized
from mas.scenarios.command import _print_profile
from mas.scenarios.measure import baselines, measure
from mas.scenarios.registry import PLAYED_ELSEWHERE
from mas.scenarios.world import FolderScenario, expert_of

Mas = Callable[..., Any]


OTHERS = """
from typing import Annotated, Literal
from pydantic import Field
from mas.core.options import Options
from mas.scenarios import relay

class OtherOptions(Options):
    mode: Literal["a", "b"] = "a"
    share: Annotated[float, Field(gt=0, lt=1)] | None = None

ENTRY = (OtherOptions, lambda options: relay.build(relay.RelayOptions()))
"""
COIN = """
class Coin:
    views = ("planner", "executor")

    def __init__(self, sides: int = 2) -> None:
        self.sides = sides

    def reset(self, random):
        self.up = random.randrange(self.sides)

    def observe(self, view):
        return str(self.up)

    def step(self, action):
        return float(action == str(self.up))

class Half:
    def reset(self, random):
        pass
"""


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for packages of others, which are found there."""
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.fixture
def others(packages: Path) -> str:
    """The name of a scenario that another package offers: relay under another name, without a family or sizes."""
    put_package(packages, "somebody", {"mas.scenarios": {"others": "its_relay:ENTRY"}}, its_relay=OTHERS)
    return "others"


def test_every_module_with_an_entry_is_registered_and_none_is_imported_before_it_is_asked_for() -> None:
    folder = Path(registry.__file__).parent
    with_entry = [path for path in folder.rglob("*.py") if "\nENTRY = " in path.read_text(encoding="utf-8")]
    assert {path.parent.name for path in with_entry} == {*SCENARIOS, *PLAYED_ELSEWHERE}
    code = "import sys, mas.scenarios\nprint(*(name for name in sys.modules if name.startswith('mas.scenarios.')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = {name.split(".")[2] for name in done.stdout.split()}
    assert "registry" in imported
    assert not imported & set(SCENARIOS)


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_profile_says_what_the_scenario_has(name: str) -> None:
    for size in SCENARIOS[name].sizes:
        known, scenario = profile(name, size), build_scenario(sized(name, size))
        world = scenario.environment().spec
        assert (known.family, known.size) == (SCENARIOS[name].family, size)
        assert known.summary, "its README has no first paragraph"
        assert not known.summary.startswith("#")
        assert (known.seats, known.views, known.terms) == (world.seats, world.views, world.terms)
        assert known.max_turns == world.max_turns
        assert {team: dict(agents) for team, agents in known.teams.items()} == {
            team: spec.members() for team, spec in scenario.teams.items()
        }
        assert {option.name for option in known.options} == set(SCENARIOS[name].options.model_fields)
        assert known.has_expert is (expert_of(scenario) is not None)


def test_options_are_told_with_type_default_and_bounds() -> None:
    options = {option.name: option for option in profile("plan_path").options}
    assert (options["size"].kind, options["size"].default, options["size"].bounds) == ("integer", 4, ">= 3, <= 10")
    assert (options["max_turns"].kind, options["max_turns"].bounds) == ("integer or null", ">= 1")


def test_a_scenario_of_another_package_is_listed_too(others: str) -> None:
    assert scenario_names() == [*SCENARIOS, others]
    known = profile(others)
    assert (known.family, list(known.sizes)) == ("other", ["small"])
    options = {option.name: option for option in known.options}
    assert (options["mode"].default, options["mode"].bounds) == ("a", "one of a, b")
    assert options["share"].bounds == "> 0, < 1"
    assert known.summary.startswith("Can two agents agree on a code?")


BROKEN = {
    "broken": ("divides:ENTRY", "comes with the package somebody, and its divides:ENTRY cannot be loaded: Zero"),
    "quits": ("quits:ENTRY", "comes with the package somebody, and its quits:ENTRY cannot be loaded: SystemExit: bye"),
    "wrong": ("coin:__name__", "coin:__name__ of another package is a str, and neither a mas.scenarios.ScenarioEntry"),
    "half": ("coin:Half", "Half has no observe, step; an environment needs reset, observe, step"),
}
"""Name of a scenario -> its entry point, and what is said of it."""


def test_scenarios_of_another_package_that_break_spoil_no_list(packages: Path, mas: Mas) -> None:
    points = {name: place for name, (place, _) in BROKEN.items()} | {"relay": "coin:Coin"}
    quits = "raise SystemExit('bye')"
    put_package(packages, "somebody", {"mas.scenarios": points}, divides="1 / 0", quits=quits, coin=COIN)
    listed = mas("scenarios")
    assert listed.code == 0
    assert "plan_path" in listed.out
    assert "scenario 'relay' of the package somebody cannot be chosen: mas has one of this name" in listed.out
    for name, (_, said) in BROKEN.items():
        assert said in next(line for line in listed.out.splitlines() if line.startswith(f"scenario '{name}'"))
    ran = mas("scenarios", "quits")
    assert (ran.code, ran.err.count("\n")) == (2, 1)


def test_a_package_may_offer_a_class_and_two_may_not_offer_one_name(packages: Path, mas: Mas) -> None:
    put_package(packages, "mint", {"mas.scenarios": {"coin": "coin:Coin"}}, coin=COIN)
    assert [option.name for option in profile("coin").options] == ["sides"]
    assert load_config(["scenario=coin", "scenario.options.sides=6"]).scenario.name == "coin"
    put_package(packages, "purse", {"mas.scenarios": {"coin": "coin:Half"}})
    said = "'coin' is offered by 2 installed packages: mint (coin:Coin) and purse (coin:Half). Uninstall all but one"
    with pytest.raises(ConfigError, match=re.escape(said)):
        find_scenario("coin")
    assert said in mas("scenarios").out


@pytest.mark.nightly
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_size_can_be_said_as_overrides(name: str) -> None:
    for size in SCENARIOS[name].sizes:
        config = load_config([f"scenario.name={name}", *size_overrides(name, size)])
        assert config.scenario == sized(name, size)


def test_a_scenario_whose_folder_holds_no_team_says_what_its_package_lacks(tmp_path: Path) -> None:
    whole = build_scenario(sized("relay"))
    assert isinstance(whole, FolderScenario)
    kept = {one.name: getattr(whole, one.name) for one in fields(whole) if one.init}
    file = tmp_path / "relay" / "__init__.py"
    why = f"scenario 'relay': no *.yaml lies in {file.parent}; a package must include its YAML files"
    with pytest.raises(ConfigError, match=re.escape(why)):
        FolderScenario(**kept | {"file": str(file)})


def test_a_game_of_another_library_is_pointed_to_where_it_is_played() -> None:
    with pytest.raises(
        ConfigError, match=r"id of a bridge.* not a scenario.*scenario.options.id=open_spiel:kuhn_poker.*bridges.md"
    ):
        build_scenario(ScenarioOptions(name="open_spiel:kuhn_poker"))


def test_the_first_paragraph_of_a_page_is_its_first_text() -> None:
    assert first_paragraph("# Title\n\n## Under it\n\none\n two\n\nthree") == "one two"
    assert first_paragraph("# Title\n") == ""


@pytest.mark.parametrize(("size", "options"), [(None, {}), ("medium", {"size": 6, "walls": 7})])
def test_a_size_is_options(size: str | None, options: Mapping[str, int]) -> None:
    assert sized("plan_path", size) == ScenarioOptions(name="plan_path", options=dict(options))


def test_a_size_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"scenario 'plan_path' has no size 'medum'. Did you mean 'medium'\?"):
        sized("plan_path", "medum")


def test_baselines_of_relay_are_what_can_be_computed() -> None:
    chance, best = baselines(build_scenario(sized("relay")), 400, 3)
    # One of four digits: 0.25; four standard deviations of 400 are 4 x sqrt(0.25 x 0.75 / 400) = 0.087.
    assert chance.success == pytest.approx(0.25, abs=0.087)
    assert (best.success, best.high, best.rewards, best.turns, best.illegal) == (1.0, 1.0, {"team": 1.0}, 1.0, 0.0)
    assert chance.low < 0.25 < chance.high
    assert baselines(build_scenario(sized("relay")), 400, 3) == (chance, best)
    assert baselines(build_scenario(sized("relay")), 400, 4)[0] != chance


@pytest.mark.parametrize("name", ["relay", "two_hop", "plan_path"])
def test_experts_that_see_everything_solve_everything(name: str) -> None:
    for size in SCENARIOS[name].sizes:
        scenario = build_scenario(sized(name, size))
        expert = expert_of(scenario)
        assert expert is not None
        best = measure(scenario, "expert", expert, 100, 0)
        assert best is not None
        assert (best.success, best.illegal) == (1.0, 0.0)


def test_illegal_actions_are_counted_and_who_cannot_tell_is_left_out() -> None:
    def clumsy(environment: Environment, random: Random) -> dict[str, str]:
        return {"team": "U" if random.random() < 0.5 else "no such action"}

    def silent(environment: Environment, random: Random) -> None:
        return None

    scenario = build_scenario(sized("plan_path"))
    found = measure(scenario, "clumsy", clumsy, 40, 0)
    assert found is not None
    assert 0.5 < found.illegal < 0.95
    assert measure(scenario, "silent", silent, 3, 0) is None


def test_the_random_player_cannot_tell_where_actions_are_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = build_scenario(sized("relay"))
    environment = scenario.environment()
    environment.reset(scenario.task("eval", 0))
    monkeypatch.setattr(environment, "legal", lambda seat: None)
    assert random_script(environment, Random(0)) is None
    monkeypatch.setattr(environment, "legal", lambda seat: ())
    assert random_script(environment, Random(0)) == {"team": ""}


def test_the_command_lists_all_and_tells_all_of_one(mas: Mas) -> None:
    listed = mas("scenarios")
    assert listed.code == 0
    assert all(name in listed.out for name in SCENARIOS)
    told = mas("scenarios", "plan_path").out
    for part in (
        "cooperative planning",
        "progress, waste, goal",
        ">= 3, <= 10",
        "scenario.options.size=6",
        "│ medium 6, large 10",
        "team solo",
    ):
        assert part in told


def test_the_command_measures_and_writes_the_same_file_twice(mas: Mas, tmp_path: Path) -> None:
    words = ("scenarios", "plan_path", "--measure", "--episodes", "20", "--seed", "5", "--size", "medium", "--json")
    texts = []
    for name in ("a.json", "b.json"):
        ran = mas(*words, str(tmp_path / name))
        assert ran.code == 0, ran.err
        texts.append((tmp_path / name).read_text())
    assert texts[0] == texts[1]
    (found,) = json.loads(texts[0])
    assert (found["profile"]["size"], found["profile"]["max_turns"], found["seed"]) == ("medium", 18, 5)
    assert [row["player"] for row in found["baselines"]] == ["random", "expert"]
    assert found["baselines"][1]["success"] == 1.0
    assert "1.000" in ran.out


def test_of_a_size_those_are_measured_that_have_it(mas: Mas, tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    assert mas("scenarios", "--size", "medium", "--json", str(path)).code == 0
    names = {found["profile"]["name"] for found in json.loads(path.read_text())}
    assert names == {name for name, entry in SCENARIOS.items() if "medium" in entry.sizes}


def test_those_without_the_size_are_named_at_the_end(mas: Mas, monkeypatch: pytest.MonkeyPatch) -> None:
    few = {name: SCENARIOS[name] for name in ("relay", "plan_path", "two_hop")}
    for module in ("mas.scenarios.registry", "mas.scenarios.catalogue"):
        monkeypatch.setattr(f"{module}.SCENARIOS", few)
    ran = mas("scenarios", "--measure", "--size", "medium", "--episodes", "2")
    assert (ran.code, ran.out.splitlines()[-1]) == (0, "without a size 'medium', and left out: relay, two_hop")
    assert "left out" not in mas("scenarios", "--measure", "--episodes", "2").out


@pytest.mark.parametrize("name", [name for name, entry in SCENARIOS.items() if len(entry.sizes) > 1])
def test_the_command_that_is_told_is_one_for_a_shell_and_names_a_model_where_one_is_needed(name: str) -> None:
    printed = StringIO()
    for size in list(SCENARIOS[name].sizes)[1:]:
        printed.truncate(printed.seek(0))
        try:
            _print_profile(Console(file=printed, width=300), profile(name, size))
        except MissingPackage:
            pytest.skip("its package is not installed")
        (line,) = [line for line in printed.getvalue().splitlines() if line.startswith(f"train at size {size}: ")]
        mas, train, *words = shlex.split(line.partition(": ")[2])
        assert (mas, train) == ("mas", "train")
        # what a shell would take as its own is in quotes
        assert all(shlex.quote(word) in line for word in words)
        config = load_config(words)
        assert config.scenario == sized(name, size)
        changed = SCENARIOS[name].sizes[size]
        if "style" in changed or "calls" in changed or not SCENARIOS[name].is_demonstrated:
            assert config.model.path == "Qwen/Qwen3-0.6B"
        if name in ("plan_path", "sokoban"):
            assert config.model.path == "tiny"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("plan_pth",), "Did you mean 'plan_path'?"),
        (("--size", "hugest"), "no scenario has the size 'hugest'; there are: small, medium"),
        (("relay", "--size", "hugest"), "scenario 'relay' has no size 'hugest'."),
        (("relay", "--episodes", "3"), "--episodes is for --measure, which is not given"),
        (("relay", "--seed", "3"), "--seed is for --measure, which is not given"),
        (("relay", "--json", "none/found.json"), "none/found.json cannot be written"),
        (("relay", "--json", "/proc/found.json"), "/proc/found.json cannot be written"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(words: tuple[str, ...], text: str, mas: Mas) -> None:
    ran = mas("scenarios", *words)
    assert ran.code == 2
    assert text in ran.err
    assert ran.err.count("\n") == 1


def test_a_scenario_whose_package_is_missing_is_listed_as_not_measured(
    mas: Mas, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def missing(module: str, extra: str) -> None:
        raise MissingPackage(f"needs {extra}")

    monkeypatch.setattr("mas.scenarios.reasoning.load_package", missing)
    ran = mas("scenarios", "--measure", "--episodes", "1", "--json", str(tmp_path / "found.json"))
    assert ran.code == 0
    found = {one["profile"]["name"]: one for one in json.loads((tmp_path / "found.json").read_text())}
    assert found["reasoning"]["missing"] == "needs reasoning-gym"
    assert found["relay"]["missing"] is None
    alone = mas("scenarios", "reasoning", "--measure", "--episodes", "1")
    assert (alone.code, alone.err.strip()) == (2, "error: needs reasoning-gym")
