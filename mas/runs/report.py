"""The report of one run, read from its directory. Free of torch."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

from mas.config.load import overrides_of
from mas.config.options import Config
from mas.core.errors import ConfigError, RunDirectoryError
from mas.core.records import Line, Scene
from mas.graph.draw import mermaid, svg
from mas.graph.plan import TeamPlan
from mas.observe.curves import curve
from mas.observe.durations import shares_text
from mas.observe.files import read_lines
from mas.observe.metrics import flatten, read_metrics
from mas.observe.palette import agent_colours
from mas.observe.progress import format_number
from mas.observe.report_records import (
    STEP_PARTS,
    Chart,
    Conversation,
    ConversationPair,
    KeyNumber,
    Report,
    throughput,
)

_SHOWN = 4
_Lines = Sequence[Mapping[str, Any]]


def build_report(run: Path, config: Config, plan: TeamPlan) -> Report:
    """Curves per role and team, conversations before and after training, the team, and how to do it again.

    Raises:
        RunDirectoryError: the run has not measured anything yet, or its files are damaged.
    """
    lines = read_metrics(run / "metrics.jsonl")
    if not lines:
        raise RunDirectoryError(f"Run directory {run} holds no metrics yet. Train on: mas train run_dir={run}")
    name = config.scenario.name
    return Report(
        title=f"{name}: {config.algorithm.name}",
        subtitle=f"team {plan.spec.name} of {', '.join(plan.agents)}; base {config.model.path}",
        roles=plan.spec.members(),
        numbers=_numbers(lines, config),
        headline=_headline(lines, config),
        curves=_charts(lines, plan),
        conversations=_comparisons(read_lines(run / "samples.jsonl")),
        graph_svg=svg(plan, agent_colours(plan.spec.members())),
        graph_mermaid=mermaid(plan),
        command=command_again(config),
        configuration=yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True),
    )


def command_again(config: Config) -> str:
    """What trains it again in a directory of its own: in this one it has been done. Else why no command does."""
    again = config.model_copy(update={"run_dir": f"{config.run_dir}-again"})
    try:
        return shlex.join(["mas", "train", *overrides_of(again)])
    except ConfigError as error:
        return f"# no command trains it again: {error}"


def _values(lines: _Lines, metric: str) -> list[float]:
    found = (flatten(line).get(metric) for line in lines)
    return [value for value in found if value is not None]


def _numbers(lines: _Lines, config: Config) -> tuple[KeyNumber, ...]:
    numbers = []
    for kind in ("greedy", "sampled"):
        values = _values(lines, f"eval/{kind}/success")
        if values:
            before, after = format_number(values[0]), format_number(values[-1])
            note = f"{config.train.eval_tasks} held-out tasks"
            numbers.append(KeyNumber(label=f"success, {kind}", before=before, after=after, note=note))
    numbers.append(KeyNumber(label="steps", after=str(lines[-1]["step"])))
    tokens = _values(lines, "tokens")
    if tokens:
        numbers.append(KeyNumber(label="tokens sampled", after=format_number(tokens[-1])))
    numbers += _throughput(lines)
    whole, _, shares = shares_text(lines).partition(": ")
    if whole:
        numbers.append(KeyNumber(label="time", after=whole, note=shares))
    return tuple(numbers)


def _throughput(lines: _Lines) -> list[KeyNumber]:
    """None where no step was timed."""
    steps = [line for line in lines if "sample" in line.get("seconds", {})]
    seconds = {part: sum(line["seconds"].get(part, 0.0) for line in steps) for part in STEP_PARTS}
    new_tokens = _values(lines, "completion_tokens")
    number = throughput(new_tokens[-1] if new_tokens else 0.0, seconds, len(steps))
    return [] if number is None else [number]


def _held_out(number: str) -> dict[str, str]:
    return {kind: f"eval/{kind}/{number}" for kind in ("greedy", "sampled")}


def _measures(lines: _Lines) -> list[str]:
    """What the environment measures beside rewards."""
    greedy = (line.get("eval", {}).get("greedy", {}) for line in lines)
    return sorted({name for evaluation in greedy for name in evaluation.get("measures", {})})


def _headline(lines: _Lines, config: Config) -> tuple[str, ...]:
    values = _values(lines, "eval/greedy/success")
    if not values:
        return ()
    first = next(line["step"] for line in lines if "greedy" in line.get("eval", {}))
    since = f" (step {first}, the first that was evaluated)" if first else ""
    return (
        f"Success on {config.train.eval_tasks} held-out tasks went from {values[0]:.2f}{since} to {values[-1]:.2f} "
        f"in {lines[-1]['step']} steps of {config.train.tasks_per_step} tasks.",
    )


def _charts(lines: _Lines, plan: TeamPlan) -> tuple[Chart, ...]:
    roles = list(dict.fromkeys(plan.spec.members().values()))
    trained = dict.fromkeys(name for line in lines for name in line.get("adapters", {}))
    adapters = sorted(trained, key=lambda name: roles.index(name) if name in roles else len(roles))
    wanted = (
        ("Success on held-out tasks", "success", _held_out("success")),
        ("Reward of the team", "reward", {"team": "reward"}),
        ("Reward of each role", "reward", {role: f"roles/{role}/reward" for role in roles}),
        ("Output that does not parse", "share of turns", {role: f"roles/{role}/failures" for role in roles}),
        ("Groups in which all rewards are equal", "groups", {r: f"roles/{r}/groups_zero_variance" for r in roles}),
        ("Experiences of each role", "experiences", {role: f"experiences/{role}/count" for role in roles}),
        ("Entropy", "nats", {name: f"adapters/{name}/entropy" for name in adapters}),
        *((f"Held-out tasks: {name}", name, _held_out(f"measures/{name}")) for name in _measures(lines)),
    )
    return tuple(
        Chart(
            title=title,
            x_label="training step",
            y_label=label,
            series=tuple(curve(name, [lines], metric) for name, metric in known.items()),
            y_range=(-0.02, 1.02) if label in ("success", "share of turns") else None,
        )
        for title, label, metrics in wanted
        if (known := {name: metric for name, metric in metrics.items() if _values(lines, metric)})
    )


def _comparisons(samples: _Lines) -> tuple[ConversationPair, ...]:
    """The same held-out tasks at the first and the last greedy evaluation, those first that were learned."""
    greedy = [sample for sample in samples if sample["source"] == "greedy"]
    steps = sorted({sample["step"] for sample in greedy})
    if len(steps) < 2:
        return ()
    before, after = ({s["task"]: s for s in greedy if s["step"] == step} for step in (steps[0], steps[-1]))
    shared = [task for task in before if task in after]
    shared.sort(key=lambda task: after[task]["success"] - before[task]["success"], reverse=True)
    return tuple(
        ConversationPair(
            title=f"task {task}",
            before=_conversation(before[task], f"{'early in' if steps[0] else 'before'} training (step {steps[0]})"),
            after=_conversation(after[task], f"after training (step {steps[-1]})"),
        )
        for task in shared[:_SHOWN]
    )


def _conversation(sample: Mapping[str, Any], label: str) -> Conversation:
    rewards = ", ".join(f"{name} {value:+g}" for name, value in sample["rewards"].items())
    outcome = "solved" if sample["success"] else (sample["cause"] or "not solved")
    return Conversation(
        label=label,
        lines=tuple(msgspec.convert(sample["lines"], list[Line])),
        scenes=tuple(msgspec.convert(sample.get("scenes", []), list[Scene])),
        outcome=f"{outcome} ({rewards})" if rewards else outcome,
        is_success=sample["success"],
    )
