"""The records of what scenarios do, `tests/data/scenarios.json`: compared and written.

`python tests/scenarios/scenario_records.py` compares all tasks, with `--write` it records anew what differs.

A *variant* is a size of a scenario, or its defaults with one option changed: each value of an option that has a list of
values, and what `MORE` adds. One entry is a variant with a team, with its expert, or its demonstrations; it has a short
digest for each task. A team is played by texts that a seeded generator draws, an expert acts for all seats. The digest
covers every prompt, output, own reward, observation, action, reward, and what the environment says when it is over;
floats with 9 digits, as the last ones depend on the machine.
"""

import argparse
import json
import sys
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).parents[1]))

from installed import INSTALLED

from mas.config.options import ScenarioOptions
from mas.core import environment as contract
from mas.core.environment import Environment, Move
from mas.core.errors import ConfigError, SandboxError
from mas.core.naming import agent_of
from mas.core.role import View
from mas.core.scenario import Scenario
from mas.graph.plan import TeamPlan, compile_team
from mas.roles import build_roles
from mas.runtime.flow import Flow
from mas.runtime.play import look, seat_actions, silent_agents
from mas.scenarios import build_scenario
from mas.scenarios.world import expert_of

RECORD = Path(__file__).parents[1] / "data" / "scenarios.json"
TASKS = 20
SHOWN = 4
"""Hexadecimal digits of a task's digest."""
SPEAKS = 40
"""The most outputs in a team turn; a loop that random texts do not leave ends the play."""
LEFT_OUT = {"bridge", "reasoning"}
"""Their games are other packages'; these have records of their own tests."""
MORE: dict[str, tuple[dict[str, Any], ...]] = {
    "two_player": (
        {"game": "leduc_poker"},
        {"game": "simple_negotiation", "style": "words"},
        {"game": "kuhn_poker+tic_tac_toe", "marked": True},
    ),
    "help_desk": ({"style": "words", "user": "talking"},),
    "economy": ({"side": "worker", "style": "words"}, {"law": "optimal", "side": "worker"}),
    "imposter": ({"side": "imposter", "style": "words"},),
    "debate": ({"style": "words", "judge": "role"}, {"style": "words", "judge": "rule"}),
    "math_team": ({"calls": "json", "operations": 3},),
    "plan_path": ({"size": 6, "walls": 9, "oracle": True, "style": "words"},),
    "red_team": ({"style": "words", "rewards": "zero_sum"},),
    "refine": ({"style": "extreme", "operands": 4},),
    "tool_use": ({"calls": "json", "operations": 2}, {"calls": "json", "kinds": "store", "operations": 2}),
}
Record = dict[str, dict[str, str]]
"""Scenario -> entry -> digests of its tasks, with spaces between."""


def recorded_scenarios() -> list[str]:
    """Those that can be played here."""
    return [name for name in INSTALLED if name not in LEFT_OUT]


def variants(name: str) -> dict[str, dict[str, Any]]:
    """The options of each variant, by its name; no two have equal options."""
    entry = INSTALLED[name]
    found = {size: dict(options) for size, options in entry.sizes.items()}
    for key, about in entry.options.model_fields.items():
        values = (False, True) if about.annotation is bool else _literals(about.annotation)
        found |= {f"{key}={value}": {key: value} for value in values if value != about.default}
    for options in MORE.get(name, ()):
        found[",".join(f"{key}={value}" for key, value in options.items())] = options
    different: dict[str, dict[str, Any]] = {}
    for variant, options in found.items():
        if options not in different.values():
            different[variant] = options
    return different


def _literals(annotation: Any) -> tuple[Any, ...]:
    if typing.get_origin(annotation) is typing.Literal:
        return typing.get_args(annotation)
    return tuple(value for part in typing.get_args(annotation) for value in _literals(part))


def records(name: str, tasks: int) -> dict[str, str]:
    """The entries of a scenario, each with its first tasks.

    Raises:
        ConfigError: nothing here can run the programs that are its tasks.
    """
    found = {}
    for variant, options in variants(name).items():
        try:
            scenario = build_scenario(ScenarioOptions(name=name, options=options))
            scenario.task("train", 0)
        except ConfigError as error:
            if isinstance(error.__cause__, SandboxError):
                raise
            found[variant] = "refused"
            continue
        for entry, play in plays(scenario).items():
            found[f"{variant}, {entry}"] = " ".join(_short(play(index)) for index in range(tasks))
    return found


def plays(scenario: Scenario) -> dict[str, Callable[[int], Iterator[Any]]]:
    """What the entries of a variant are made of: everything that happens in the task of a number."""
    texts = _texts(scenario)
    found: dict[str, Callable[[int], Iterator[Any]]] = {}
    for team, spec in scenario.teams.items():
        plan = compile_team(spec, build_roles(spec))
        found[f"team {team}"] = partial(team_play, scenario, plan, texts)
    if expert_of(scenario) is not None:
        found["expert"] = partial(expert_play, scenario)
    if texts:
        found["demonstrations"] = lambda index: iter(texts[index::TASKS])
    return found


def _texts(scenario: Scenario) -> list[tuple[str, str]]:
    try:
        return [
            *islice(scenario.demonstrations(0, expert=True), 60),
            *islice(scenario.demonstrations(1, expert=False), 60),
        ]
    except ConfigError:
        return []


def team_play(scenario: Scenario, plan: TeamPlan, texts: Sequence[tuple[str, str]], index: int) -> Iterator[Any]:
    """Prompts, outputs and pay of a team whose members draw what they say."""
    environment, random = scenario.environment(), Random(index)
    environment.reset(scenario.task("eval" if index % 2 else "train", index))
    yield from _shown(environment)
    while seats := environment.to_move():
        own = [seat for seat in seats if seat in plan.starting]
        observations = look(plan, environment)
        flow, spoken = Flow.start(plan, own, silent_agents(observations)), 0
        said = []
        while not flow.finished and spoken < SPEAKS:
            for agent in flow.ready():
                flow = flow.begin(agent)
            for agent in flow.running():
                role = plan.roles[agent_of(agent)]
                view = flow.view(agent, observations[agent_of(agent)])
                text = _draw(random, environment, role.spec.choices, texts, view)
                output = role.parse(text)
                yield agent, role.prompt(view), role.chat(view), role.prefill(view), text, output
                if earlier := role.earlier(view):
                    yield earlier
                said.append((agent, role.name, flow, output))
                flow, spoken = flow.complete(agent, output), spoken + 1
        for agent, role_name, before, output in said:
            move = Move(
                agent=agent,
                role=role_name,
                environment=environment,
                output=output,
                before=before.outputs,
                after=flow.outputs,
            )
            yield agent, dict(scenario.reward.own(move))
        if not flow.finished:
            yield "a loop without an end"
            return
        theirs = {seat: random.choice(environment.legal(seat) or ("",)) for seat in seats if seat not in own}
        yield from _stepped(environment, seat_actions(flow, own) | theirs)
    yield from _over(environment)


def _draw(
    random: Random, environment: Environment, choices: Sequence[str], texts: Sequence[tuple[str, str]], view: View
) -> str:
    """A text that may be right: of a choice, a legal action, a demonstrated answer, what is heard or seen, or none."""
    legal = [action for seat in environment.to_move() for action in environment.legal(seat) or ()]
    heard = [message.payload.content for message in view.messages] + list(view.observation.fields.values())
    pools = [pool for pool in (choices, legal, [answer for _, answer in texts], heard, ("?!", "", "1", "yes")) if pool]
    return random.choice(random.choice(pools))


def expert_play(scenario: Scenario, index: int) -> Iterator[Any]:
    """What an expert does, sees and is paid, and what there would be to choose from."""
    environment, random, expert = scenario.environment(), Random(index), expert_of(scenario)
    assert expert is not None
    environment.reset(scenario.task("eval" if index % 2 else "train", index))
    yield from _shown(environment)
    while environment.to_move():
        actions = expert(environment, random)
        if actions is None:
            yield "no advice"
            return
        yield from _stepped(environment, actions)
    yield from _over(environment)


def _stepped(environment: Environment, actions: Mapping[str, str]) -> Iterator[Any]:
    step = environment.step(actions)
    yield dict(actions), {seat: dict(paid) for seat, paid in step.rewards.items()}, step.illegal
    yield from _shown(environment)


def _shown(environment: Environment) -> Iterator[Any]:
    yield [environment.legal(seat) for seat in environment.to_move()]
    yield {view: environment.observe(view) for view in environment.spec.views}


def _over(environment: Environment) -> Iterator[Any]:
    yield environment.success(), contract.measures_of(environment), contract.world_of(environment), environment.render()
    for kind, method in (
        (contract.Answered, "right_answer"), (contract.Named, "entities"), (contract.Guiding, "guidance"),
    ):  # fmt: skip
        if isinstance(environment, kind):
            yield getattr(environment, method)()


def _short(parts: Iterator[Any]) -> str:
    """The digest of what happens, in order."""
    text = json.dumps([_plain(part) for part in parts], sort_keys=True, ensure_ascii=True)
    return sha256(text.encode()).hexdigest()[:SHOWN]


def _plain(part: Any) -> Any:
    if isinstance(part, float):
        return format(part + 0.0, ".9g")
    if isinstance(part, Mapping):
        return {str(key): _plain(value) for key, value in part.items()}
    if isinstance(part, str) or part is None or isinstance(part, int):
        return part
    if isinstance(part, Sequence):
        return [_plain(value) for value in part]
    if hasattr(part, "model_dump"):
        return [part.kind, _plain(part.model_dump())]
    return _plain(msgspec.to_builtins(part))


def read() -> Record:
    found: Record = json.loads(RECORD.read_text(encoding="utf-8"))
    return found


def differences(name: str, found: Mapping[str, str], wanted: Mapping[str, str]) -> list[str]:
    """A line for each entry that differs, which names scenario, variant, team and tasks, of those in both."""
    lines = []
    for entry in dict.fromkeys((*found, *wanted)):
        if entry not in found:
            lines.append(f"{name}, {entry}: not there any more")
        elif entry not in wanted:
            lines.append(f"{name}, {entry}: not in the record")
        else:
            pairs = zip(found[entry].split(), wanted[entry].split(), strict=False)
            wrong = [str(index) for index, (now, then) in enumerate(pairs) if now != then]
            lines += [f"{name}, {entry}: tasks {', '.join(wrong)} differ"] if wrong else []
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="record what differs")
    parser.add_argument("scenarios", nargs="*", default=[], help="default: all")
    asked = parser.parse_args()
    names = asked.scenarios or recorded_scenarios()
    kept = read() if RECORD.is_file() else {}
    lines = []
    for name in names:
        found = records(name, TASKS)
        lines += differences(name, found, kept.get(name, {}))
        kept[name] = found
    print("\n".join(lines) or "equal")
    if asked.write:
        RECORD.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    return 0 if asked.write else bool(lines)


if __name__ == "__main__":
    sys.exit(main())
