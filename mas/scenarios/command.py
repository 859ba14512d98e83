"""The command `mas scenarios`: which there are, what one is, and what players without a model reach in it."""

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mas.config.completion import complete_scenario
from mas.core.errors import ConfigError, MissingPackage
from mas.core.plugins import hidden_offers
from mas.observe.files import STANDARD_OUTPUT, check_json_file, write_json_file
from mas.scenarios.catalogue import Profile, is_for_real_models, profile, scenario_names, size_overrides, sized
from mas.scenarios.measure import Baseline, baselines, players
from mas.scenarios.registry import GROUP, PLAYED_ELSEWHERE, SCENARIOS, build_scenario, find_scenario

EPISODES = 200


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """One scenario as the JSON file has it. `baselines` None: nobody measured; `seed`: what they were measured with;
    `missing`: why they could not be, where a package is not installed."""

    profile: Profile
    baselines: tuple[Baseline, ...] | None = None
    seed: int | None = None
    missing: str | None = None


def scenarios(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="one scenario; default: all", autocompletion=complete_scenario)
    ] = "",
    measure: Annotated[
        bool, typer.Option("--measure", help="play held-out tasks with a random player and the scenario's expert")
    ] = False,
    size: Annotated[str | None, typer.Option(help="small, medium, ...; default: the smallest")] = None,
    episodes: Annotated[int | None, typer.Option(min=1, help=f"tasks of --measure; default {EPISODES}")] = None,
    seed: Annotated[int | None, typer.Option(help="of the players of --measure; default 0")] = None,
    find: Annotated[
        list[str] | None,
        typer.Option(metavar="WORD", help="list those whose name, family, description or roles have this word"),
    ] = None,
    model: Annotated[
        Literal["tiny", "words"] | None,
        typer.Option(help="list those that the tiny base can play at this size, or those for models that read words"),
    ] = None,
    json: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", help="write all of it there, too; -: print that and nothing else"),
    ] = None,
) -> None:
    """List the scenarios, those of other packages included, or say all about one."""
    if name and (find or model):
        raise ConfigError("--find and --model choose from the list, and NAME names one: leave one of them out")
    for option, value in (("--episodes", episodes), ("--seed", seed)):
        if value is not None and not measure:
            raise ConfigError(f"{option} is for --measure, which is not given")
    check_json_file(json)
    broken = {} if name else _broken()
    names = [name] if name else _with_size(size, broken)
    count = EPISODES if episodes is None else episodes
    chosen = _chosen(names, find or [], model, size, broken) if find or model else names
    found = _all_found(chosen, None if name else broken, size, measure, count, seed or 0)
    console = Console(quiet=json == STANDARD_OUTPUT)
    if name:
        _print_profile(console, found[0].profile)
    elif not measure:
        console.print(_listed(found))
    if measure:
        missing = [Text(f"{one.profile.name} was not measured: {one.missing}") for one in found if one.missing]
        console.print(_measured(found), *_measures(found), *missing, sep="\n")
    if not name:
        _print_left_out(console, size, names, broken)
    if json is not None:
        write_json_file(json, found)
    if name and found[0].missing:
        raise MissingPackage(found[0].missing)


def _chosen(
    names: Sequence[str], words: Sequence[str], model: str | None, size: str | None, broken: dict[str, str]
) -> list[str]:
    """Those that have all words, at a size that suits the model."""
    chosen = []
    for name in names:
        try:
            known = profile(name, size)
            roles = [role for members in known.teams.values() for role in members.values()]
            text = " ".join((name, known.family, known.summary, *roles)).lower()
            is_fit = model is None or (model == "words") == is_for_real_models(name, known.size)
        except MissingPackage as error:
            broken[name] = f"{name}: {error}"
            continue
        if is_fit and all(word.lower() in text for word in words):
            chosen.append(name)
    if not chosen:
        raise ConfigError("no scenario is left: take fewer or other words with --find, or another --model or --size")
    return chosen


def _broken() -> dict[str, str]:
    """Scenarios of other packages that cannot be loaded, and why: the rest is listed all the same."""
    broken = {}
    for name in scenario_names():
        try:
            find_scenario(name)
        except ConfigError as error:
            broken[name] = str(error)
    return broken


def _print_left_out(console: Console, size: str | None, names: Collection[str], broken: Mapping[str, str]) -> None:
    if left := [one for one in scenario_names() if one not in names and one not in broken]:
        console.print(Text(f"without a size {size!r}, and left out: {', '.join(left)}"), soft_wrap=True)
    for why in (*broken.values(), *hidden_offers("scenario", GROUP, {*SCENARIOS, *PLAYED_ELSEWHERE})):
        console.print(Text(why, style="red"), soft_wrap=True)


def _with_size(size: str | None, broken: Collection[str]) -> list[str]:
    """All scenarios that have a size, but for the broken ones."""
    names = [name for name in scenario_names() if name not in broken]
    chosen = [name for name in names if size is None or size in find_scenario(name).sizes]
    if not chosen:
        known = dict.fromkeys(size for name in names for size in find_scenario(name).sizes)
        raise ConfigError(f"no scenario has the size {size!r}; there are: {', '.join(known)}")
    return chosen


def _all_found(
    names: Sequence[str], broken: dict[str, str] | None, size: str | None, is_measured: bool, episodes: int, seed: int
) -> list[Found]:
    """What is known of each; one whose package is missing goes to `broken`, or is the error where that is None."""
    found = []
    for name in names:
        try:
            found.append(_found(name, size, is_measured, episodes, seed))
        except MissingPackage as error:
            if broken is None:
                raise
            broken[name] = f"{name}: {error}"
    return found


def _found(name: str, size: str | None, is_measured: bool, episodes: int, seed: int) -> Found:
    known = profile(name, size)
    if not is_measured:
        return Found(profile=known)
    try:
        measured = baselines(build_scenario(sized(name, size)), episodes, seed)
    except MissingPackage as error:
        return Found(profile=known, missing=str(error))
    return Found(profile=known, baselines=measured, seed=seed)


def _listed(found: list[Found]) -> Table:
    """Two columns, which fit 80 characters, ordered by family."""
    table = Table(box=None, pad_edge=False, title="scenarios, by family", caption="all about one: mas scenarios NAME")
    table.add_column("name", no_wrap=True)
    table.add_column("what it is; roles of its team; sizes; baselines", overflow="fold")
    family = ""
    for one in sorted(found, key=lambda one: one.profile.family):
        known = one.profile
        if known.family != family:
            family = known.family
            table.add_row("", Text(f"{family}", style="bold cyan"))
        roles = ", ".join(dict.fromkeys((known.teams.get("team") or next(iter(known.teams.values()))).values()))
        lines = filter(None, (roles, ", ".join(known.sizes), _players(known)))
        # the first sentence, without what stands in brackets
        said = re.split(r"(?<=[.?!]) ", re.sub(r" ?\([^()]*\)", "", known.summary), maxsplit=1)[0]
        table.add_row(Text(known.name, style="bold"), Text.assemble(said, ("\n" + "; ".join(lines), "dim")))
    return table


def _players(known: Profile) -> str:
    try:
        found = players(build_scenario(sized(known.name, known.size)))
    except ConfigError:  # its package is missing, or nothing safe runs its programs
        return ""
    return ", ".join(found) or "no baselines"


def _print_profile(console: Console, known: Profile) -> None:
    console.print(Text.assemble((known.name, "bold"), f" ({known.family})"))
    if known.summary:
        console.print(Text(known.summary))
    table = Table(show_header=False, box=None)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for words in _rows(known):
        table.add_row(*(Text(word) for word in words))
    console.print(table)
    if known.options:
        console.print(_options(known))
    if known.notes:
        # as running text, as wide as the terminal will have it
        paragraphs = (" ".join(part.split()) for part in known.notes.split("\n\n"))
        console.print(Text("\n".join(paragraphs), style="dim"))
    sizes = [size for size in known.sizes if known.sizes[size]]
    if sizes:
        size = known.size if known.size in sizes else sizes[0]
        model = ["model.path=Qwen/Qwen3-0.6B"] if is_for_real_models(known.name, size) else []
        train = shlex.join(["mas", "train", f"scenario={known.name}", *size_overrides(known.name, size), *model])
        console.print(Text(f"train at size {size}: {train}"), soft_wrap=True)


def _rows(known: Profile) -> list[tuple[str, str]]:
    moves = "at once" if known.dynamics == "simultaneous" else "one a step"
    return [
        ("seats", f"{', '.join(known.seats)} ({moves})" if len(known.seats) > 1 else known.seats[0]),
        ("views", ", ".join(known.views)),
        ("turns", f"at most {known.max_turns} at size {known.size}"),
        ("rewards", ", ".join(known.terms)),
        ("rewards of roles", ", ".join(known.own_terms) or "none"),
        *((f"team {team}", _members(agents)) for team, agents in known.teams.items()),
        *((f"size {size}", shlex.join(size_overrides(known.name, size)) or "the defaults") for size in known.sizes),
        ("expert", "yes" if known.has_expert else "none"),
    ]


def _members(agents: Mapping[str, str]) -> str:
    return ", ".join(agent if agent == role else f"{agent} ({role})" for agent, role in agents.items())


def _options(known: Profile) -> Table:
    table = Table(title="scenario.options.…", title_justify="left")
    for column in ("option", "type", "default", "at other sizes", "bounds"):
        table.add_column(column, overflow="fold")
    for option in known.options:
        words = (option.name, option.kind, _json(option.default), _at_sizes(known, option.name), option.bounds)
        table.add_row(*(Text(word) for word in words))
    return table


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _at_sizes(known: Profile, option: str) -> str:
    """What the sizes set an option to that do not leave it at its default: `medium 6, large 10`."""
    set_to = {size: changed[option] for size, changed in known.sizes.items() if option in changed}
    return ", ".join(f"{size} {_json(value)}" for size, value in set_to.items())


def _measured(found: list[Found]) -> Table:
    episodes = max((row.episodes for one in found for row in one.baselines or ()), default=0)
    table = Table(
        title=f"baselines over {episodes} held-out tasks", caption="in brackets: 95 %, Wilson's; reward: every weight 1"
    )
    for column in ("scenario", "player"):
        table.add_column(column, overflow="fold")
    for column in ("success", "reward", "turns", "illegal"):
        table.add_column(column, justify="right", no_wrap=True)
    for one in found:
        name = f"{one.profile.name}, {one.profile.size}"
        for row in one.baselines or ():
            rewards = [f"{mean:.3f}" if len(row.rewards) == 1 else f"{s} {mean:.3f}" for s, mean in row.rewards.items()]
            success = f"{row.success:.3f} ({row.low:.2f} – {row.high:.2f})"
            words = [name, row.player, success, "\n".join(rewards), f"{row.turns:.1f}", f"{row.illegal:.3f}"]
            table.add_row(*(Text(word) for word in words))
        if not one.baselines and not one.missing:
            table.add_row(name, "none: no expert, and legal actions cannot be listed")
    return table


def _measures(found: list[Found]) -> list[Text]:
    """What environments tell beside rewards."""
    rows = [(one.profile.name, row) for one in found for row in one.baselines or () if row.measures]
    return [
        Text(f"{name}, {row.player}: " + ", ".join(f"{measure} {value:.3f}" for measure, value in row.measures.items()))
        for name, row in rows
    ]
