"""Where teams work: one folder each."""

from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import Any, NamedTuple

from pydantic import ValidationError

from mas.config.options import Options, ScenarioOptions
from mas.config.problems import bridged_id, is_bridged
from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean
from mas.core.scenario import Scenario
from mas.scenarios import (
    bridge,
    code_team,
    commons,
    debate,
    delegate,
    discussion,
    economy,
    help_desk,
    imposter,
    leader_follower,
    market,
    math_team,
    matrix_games,
    negotiation,
    plan_path,
    propose,
    questions,
    reasoning,
    red_team,
    refine,
    relay,
    retrieval,
    safe_reply,
    shop,
    sokoban,
    subagents,
    sudoku,
    tool_use,
    two_hop,
    two_player,
    user_class,
    workflow,
)


class ScenarioEntry(NamedTuple):
    """One scenario: its option model, how to build it, and what kind of task it is.

    Attributes:
        family: what it has in common with others, as `cooperative planning`.
        sizes: options of its sizes by name, the smallest first; the defaults of the options are the smallest.
        is_demonstrated: whether it has demonstrations for the tiny base.
    """

    options: type[Options]
    build: Callable[[Any], Scenario]
    family: str = "other"
    sizes: Mapping[str, Mapping[str, Any]] = MappingProxyType({"small": MappingProxyType({})})
    is_demonstrated: bool = True


SCENARIOS: dict[str, ScenarioEntry] = {
    "relay": ScenarioEntry(relay.RelayOptions, relay.build, "communication"),
    "two_hop": ScenarioEntry(two_hop.TwoHopOptions, two_hop.build, "communication"),
    "shop": ScenarioEntry(
        shop.ShopOptions,
        shop.build,
        "communication",
        {"small": {}, "medium": {"offered": 6}, "large": {"offered": 9}},
        is_demonstrated=False,
    ),
    "plan_path": ScenarioEntry(
        plan_path.PathOptions,
        plan_path.build,
        "cooperative planning",
        {"small": {}, "medium": {"size": 6, "walls": 7}, "large": {"size": 10, "walls": 20}},
    ),
    "matrix_games": ScenarioEntry(matrix_games.MatrixOptions, matrix_games.build, "games of payoffs"),
    "two_player": ScenarioEntry(
        two_player.TwoPlayerOptions,
        two_player.build,
        "self-play",
        {
            "small": {},
            "medium": {"game": "leduc_poker", "style": "words", "tries": 3},
            "large": {"game": "tic_tac_toe", "style": "words", "tries": 3},
        },
    ),
    "bridge": ScenarioEntry(bridge.BridgeOptions, bridge.build, "self-play"),
    "red_team": ScenarioEntry(
        red_team.RedTeamOptions,
        red_team.build,
        "self-play",
        {"small": {}, "medium": {"style": "words"}, "large": {"style": "words", "facts": 6}},
    ),
    "propose": ScenarioEntry(propose.ProposeOptions, propose.build, "self-play"),
    "sokoban": ScenarioEntry(
        sokoban.SokobanOptions,
        sokoban.build,
        "cooperative planning",
        {
            "small": {},
            "medium": {"size": 6, "boxes": 2, "walls": 4, "pulls": 8},
            "large": {"size": 8, "boxes": 3, "walls": 8, "pulls": 16},
        },
    ),
    "sudoku": ScenarioEntry(
        sudoku.SudokuOptions,
        sudoku.build,
        "cooperative planning",
        {"small": {}, "medium": {"size": 9, "blanks": 20}, "large": {"size": 9, "blanks": 45, "forced": False}},
    ),
    "leader_follower": ScenarioEntry(
        leader_follower.ColourOptions,
        leader_follower.build,
        "hidden goals",
        {
            "small": {},
            "medium": {"size": 8, "blocks": 4, "switch": 0.08, "quota": 5},
            "large": {"size": 16, "blocks": 12, "switch": 0.04, "quota": 10},
        },
    ),
    "imposter": ScenarioEntry(
        imposter.ImposterOptions,
        imposter.build,
        "hidden roles",
        {
            "small": {},
            "medium": {"style": "words", "players": 5, "rounds": 3, "cunning": 0.5},
            "large": {"style": "words", "players": 8, "rounds": 5, "cunning": 0.9},
        },
    ),
    "refine": ScenarioEntry(
        refine.RefineOptions,
        refine.build,
        "discussion",
        {
            "small": {},
            "medium": {"style": "number", "operands": 3},
            "large": {"style": "number", "operands": 6},
        },
    ),
    "discussion": ScenarioEntry(
        discussion.DiscussionOptions,
        discussion.build,
        "discussion",
        {
            "small": {},
            "medium": {"style": "words", "steps": 3},
            "large": {"style": "words", "steps": 8},
        },
    ),
    "debate": ScenarioEntry(
        debate.DebateOptions,
        debate.build,
        "discussion",
        {"small": {}, "medium": {"style": "words"}, "large": {"style": "words", "facts": 8}},
    ),
    "safe_reply": ScenarioEntry(
        safe_reply.ReplyOptions,
        safe_reply.build,
        "conversation and feedback",
        {"small": {}, "medium": {"style": "words"}, "large": {"style": "words", "facts": 6}},
    ),
    "help_desk": ScenarioEntry(
        help_desk.DeskOptions,
        help_desk.build,
        "conversation and feedback",
        {
            "small": {},
            "medium": {"style": "words", "slots": 4, "delay": 1, "refusals": 1},
            "large": {"style": "words", "slots": 6, "changes": 2, "delay": 2, "refusals": 2},
        },
    ),
    "math_team": ScenarioEntry(
        math_team.MathOptions,
        math_team.build,
        "mathematics and code",
        {
            "small": {},
            "medium": {"calls": "json", "operations": 3, "numbers": 20},
            "large": {"calls": "json", "operations": 8, "numbers": 99},
        },
    ),
    "code_team": ScenarioEntry(
        code_team.CodeOptions,
        code_team.build,
        "mathematics and code",
        {"small": {}, "medium": {"style": "words"}, "large": {"style": "words", "steps": 4}},
    ),
    "tool_use": ScenarioEntry(
        tool_use.ToolUseOptions,
        tool_use.build,
        "tool use",
        {
            "small": {},
            "medium": {"calls": "json", "operations": 2, "items": 4, "numbers": 20},
            "large": {"calls": "json", "operations": 4, "items": 8, "numbers": 99},
        },
    ),
    "workflow": ScenarioEntry(
        workflow.WorkOptions,
        workflow.build,
        "tool use",
        {"small": {}, "medium": {"operations": 2, "items": 4}, "large": {"operations": 4, "items": 8}},
    ),
    "retrieval": ScenarioEntry(
        retrieval.RetrievalOptions,
        retrieval.build,
        "tool use",
        {"small": {}, "medium": {"style": "words"}, "large": {"style": "words", "terms": 12}},
    ),
    "delegate": ScenarioEntry(
        delegate.DelegateOptions,
        delegate.build,
        "tool use",
        {"small": {}, "medium": {"style": "words"}, "large": {"style": "words", "parts": 5}},
    ),
    "subagents": ScenarioEntry(
        subagents.CallOptions,
        subagents.build,
        "tool use",
        {"small": {}, "medium": {"spare": 0}},
    ),
    "negotiation": ScenarioEntry(
        negotiation.TalkOptions,
        negotiation.build,
        "negotiation",
        {
            "small": {},
            "medium": {"style": "words"},
            "large": {"style": "words", "kinds": 5, "turns": 6},
        },
    ),
    "market": ScenarioEntry(
        market.MarketOptions,
        market.build,
        "negotiation",
        {
            "small": {},
            "medium": {"style": "words", "businesses": 4, "manipulators": 2},
            "large": {"style": "words", "businesses": 8, "manipulators": 4},
        },
    ),
    "questions": ScenarioEntry(questions.QuestionOptions, questions.build, "questions and answers"),
    "commons": ScenarioEntry(
        commons.CommonsOptions,
        commons.build,
        "social dilemmas",
        {
            "small": {},
            "medium": {"style": "words", "capacity": 30, "rounds": 6},
            "large": {"style": "words", "capacity": 60, "rounds": 10},
        },
    ),
    "economy": ScenarioEntry(
        economy.EconomyOptions,
        economy.build,
        "social dilemmas",
        {"small": {}, "medium": {"style": "words", "people": 6}, "large": {"style": "words", "people": 16}},
    ),
    "reasoning": ScenarioEntry(
        reasoning.ReasoningOptions,
        reasoning.build,
        "reasoning",
        {
            "small": {},
            "medium": {"config": {"max_terms": 10, "max_digits": 6}},
            "large": {"config": {"max_terms": 20, "max_digits": 8}},
        },
        is_demonstrated=False,
    ),
}


def find_scenario(name: str) -> ScenarioEntry:
    """A built-in scenario, one that another package offers as entry point `mas.scenarios` (an `ScenarioEntry`), or a
    user's class, `file.py:CLASS` or `package.module:CLASS`, which is imported.

    Raises:
        ConfigError: there is no such scenario, or the package that offers it breaks, or as `user_class.load_class`.
    """
    if name in SCENARIOS:
        return SCENARIOS[name]
    offered = {point.name: point for point in entry_points(group="mas.scenarios")}
    if name not in offered:
        if is_bridged(name):
            raise ConfigError(bridged_id(name))
        if ":" in name:
            kind = user_class.load_class(name)
            return ScenarioEntry(user_class.options_of(kind), partial(user_class.build, kind), "of your own")
        raise ConfigError(f"no scenario {name!r}. {did_you_mean(name, [*SCENARIOS, *offered])}")
    try:
        return ScenarioEntry(*offered[name].load())
    except Exception as error:  # another package's code: whatever it is, it is that package's
        why = f"{offered[name].value} cannot be loaded: {type(error).__name__}: {error}"
        raise ConfigError(f"scenario {name!r} comes with another package, and its {why}") from error


def build_scenario(options: ScenarioOptions) -> Scenario:
    """The scenario that the options name, with its own options checked.

    Raises:
        ConfigError: an unknown scenario, or an option that it does not have or cannot take.
    """
    entry = find_scenario(options.name)
    try:
        return entry.build(entry.options(**options.options))
    except ValidationError as error:
        problems = []
        for problem in error.errors():
            key = ".".join(("options", *map(str, problem["loc"])))
            name = key.partition(".")[2]
            hint = f" {did_you_mean(name, entry.options.model_fields)}" if problem["type"] == "extra_forbidden" else ""
            problems.append(f"scenario.{key}: {problem['msg'].removeprefix('Value error, ')}.{hint}")
        raise ConfigError(f"scenario {options.name!r}: " + " ".join(problems)) from error
