"""The model card of a published team: what it is, how it did, how it was trained, how it is run."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mas.config.access import TEAM_FILE
from mas.config.options import TINY, Config
from mas.core.version import VERSION
from mas.graph.draw import mermaid
from mas.observe.metrics import flatten
from mas.observe.progress import format_number
from mas.training.published import PublishedBase
from mas.training.setup import Setup

KINDS = ("greedy", "sampled")
_ROWS = 12
"""Evaluations in the table of a card."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFacts:
    """What a card says.

    Attributes:
        name: where the team is: `hub:ORG/NAME`, or its folder.
        setup: what plays. trained: the configuration that it was trained with.
        model: what `model.path` is for others. note: how its weights differ from those of the base's name, or empty.
        base: of the adapters; None: roles have learned as text. is_on_hub: whether others find it under its name.
        license: of the base; None: not known.
        lines: metrics up to what is published. has_curve: whether the folder has a drawing of them.
        command, left_out: as `public_command`.
    """

    name: str
    setup: Setup
    trained: Config
    model: str
    note: str
    base: PublishedBase | None
    is_on_hub: bool
    license: str | None
    lines: Sequence[Mapping[str, Any]]
    has_curve: bool
    command: str
    left_out: Sequence[str]


def model_card(facts: CardFacts) -> str:
    """The card as Markdown with its metadata in front."""
    from huggingface_hub import ModelCard, ModelCardData

    setup, base = facts.setup, facts.base
    evaluations = _eval_results(facts)
    metadata = ModelCardData(
        base_model=base.name if base is not None and facts.is_on_hub else None,
        library_name="mas" if base is None else "peft",
        license=facts.license,
        tags=["mas", "agents", "multi-agent", *([] if base is None else ["lora"]), _tag(setup.scenario.name)],
        model_name=_title(facts) if evaluations else None,
        eval_results=evaluations or None,
    )
    parts = (_head(facts), _running(facts), _team(facts), _evaluation(facts), _training(facts))
    body = "\n".join(line for part in parts for line in (*part, ""))
    return str(ModelCard(f"---\n{metadata.to_yaml()}\n---\n\n{body}"))


def _title(facts: CardFacts) -> str:
    name = facts.name.rpartition("/")[2]
    return f"{facts.setup.team.name} on {facts.setup.scenario.name}" if name in ("", ".") else name


def _tag(text: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in text.lower())


def _head(facts: CardFacts) -> list[str]:
    setup, base = facts.setup, facts.base
    members = ", ".join(f"`{agent}`" for agent in setup.plan.agents)
    what = "one LoRA adapter per trained role" if base is not None else "text that its roles have learned"
    model = f"`{base.name}`" if base is not None else f"`{facts.model}`"
    at = f" at commit `{base.revision}`" if base is not None and base.revision is not None else ""
    return [
        f"# {_title(facts)}",
        "",
        f"The team `{setup.team.name}` of {members}, trained with mas {VERSION} by `{facts.trained.algorithm.name}` on "
        f"`{setup.scenario.name}`: {what}, on the base {model}{at}.",
        *(["", facts.note] if facts.note else []),
    ]


def _running(facts: CardFacts) -> list[str]:
    is_local = facts.base is not None and not facts.is_on_hub
    needed = "" if facts.model == TINY else f" model.path={'DIRECTORY' if is_local else facts.model}"
    lines = ["## Run it", "", "```bash"]
    lines += [f"mas run {facts.name}{needed}", f"mas serve {facts.name}{needed}", "```", ""]
    lines.append(
        "Without a revision the newest commit plays; `@COMMIT` after the name keeps one. Nothing in this repository is "
        "executed."
    )
    if facts.base is None or not facts.is_on_hub:
        return lines
    adapter = next(iter(facts.setup.trained_adapters.values()))
    at = "" if facts.base.revision is None else f", revision={json.dumps(facts.base.revision)}"
    return [
        *(*lines, "", "One adapter alone, with PEFT:", "", "```python"),
        *("from peft import PeftModel", "from transformers import AutoModelForCausalLM", ""),
        f"base = AutoModelForCausalLM.from_pretrained({json.dumps(facts.base.name)}{at})",
        *(f'model = PeftModel.from_pretrained(base, "this/folder/adapters/{adapter}")', "```"),
    ]


def _team(facts: CardFacts) -> list[str]:
    setup = facts.setup
    rows = [
        f"| `{agent}` | `{role}` | {f'`{adapter}`' if (adapter := setup.sampling_adapters.get(role)) else 'none'} |"
        for agent, role in setup.plan.spec.members().items()
    ]
    return [
        *("## The team", "", "```mermaid", mermaid(setup.plan).rstrip(), "```", ""),
        *("| agent | role | adapter |", "|---|---|---|", *rows, "", f"All of it: [{TEAM_FILE}]({TEAM_FILE})."),
    ]


def evaluated(lines: Sequence[Mapping[str, Any]], metric: str) -> list[tuple[int, float]]:
    """Steps and values of a metric by its flat name, oldest first."""
    found = ((line["step"], flatten(line).get(metric)) for line in lines)
    return [(int(step), value) for step, value in found if value is not None]


def _numbers(facts: CardFacts) -> dict[str, list[tuple[int, float]]]:
    """What was evaluated, by what a reader calls it: success, and what the environment measures."""
    names = {f"success, {kind}": f"eval/{kind}/success" for kind in KINDS}
    metrics = {name for line in facts.lines for name in flatten(line) if name.startswith("eval/greedy/measures/")}
    names |= {f"{metric.rpartition('/')[2]}, greedy": metric for metric in sorted(metrics)}
    found = {label: evaluated(facts.lines, metric) for label, metric in names.items()}
    return {label: values for label, values in found.items() if values}


def _evaluation(facts: CardFacts) -> list[str]:
    numbers, tasks = _numbers(facts), facts.trained.train.eval_tasks
    if not numbers:
        return ["## Evaluation", "", "It was not evaluated."]
    rows = [
        f"| {label} | {_number(values[0][1]) if len(values) > 1 else '–'} | {_number(values[-1][1])} |"
        for label, values in numbers.items()
    ]
    first, last = next(iter(numbers.values()))[0][0], next(iter(numbers.values()))[-1][0]
    lines = [
        *("## Evaluation", "", f"On {tasks} held-out tasks of `{facts.setup.scenario.name}`, one training seed:", ""),
        *(f"| | before (step {first}) | after (step {last}) |", "|---|---|---|", *rows),
    ]
    greedy = numbers.get("success, greedy", [])
    if len(greedy) > 2:
        lines += ["", "| step | success, greedy |", "|---|---|"]
        lines += [f"| {step} | {_number(value)} |" for step, value in _thinned(greedy)]
    if facts.has_curve:
        lines += ["", "![Success on held-out tasks by training step](learning_curve.svg)"]
    return lines


def _number(value: float) -> str:
    return f"{value:.3f}"


def _thinned(values: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """At most `_ROWS` of them, evenly, with the first and the last."""
    if len(values) <= _ROWS:
        return list(values)
    return [values[round(row * (len(values) - 1) / (_ROWS - 1))] for row in range(_ROWS)]


def _training(facts: CardFacts) -> list[str]:
    train, lines = facts.trained.train, facts.lines
    tokens = evaluated(lines, "tokens")
    budget = "none" if train.token_budget is None else f"{train.token_budget:,} tokens"
    rows = {
        "seed": str(train.seed),
        "steps": f"{max((int(line['step']) for line in lines), default=0)} of {train.tasks_per_step} tasks",
        "token budget": budget,
        "tokens sampled": format_number(tokens[-1][1]) if tokens else "not known",
    }
    found = [*("## Training", "", "| | |", "|---|---|"), *(f"| {name} | {value} |" for name, value in rows.items())]
    found += ["", "```bash", facts.command, "```"]
    if facts.left_out:
        keys = ", ".join(f"`{key}`" for key in facts.left_out)
        found += ["", f"Left out, as they name the machine that trained it: {keys}."]
    return found


def _eval_results(facts: CardFacts) -> list[Any]:
    from huggingface_hub import EvalResult

    name = facts.setup.scenario.name
    return [
        EvalResult(
            task_type="text-generation",
            dataset_type=f"mas-{_tag(name)}",
            dataset_name=f"{name}, {facts.trained.train.eval_tasks} held-out tasks",
            metric_type="success",
            metric_name=label,
            metric_value=round(values[-1][1], 6),
        )
        for label, values in _numbers(facts).items()
        if label.startswith("success")
    ]
