"""Every algorithm preset on the fixed rollouts of `rollouts`, down to gradients: all that `test_presets` compares.

This file is the only one of the golden record that knows the API of `mas`: when that moves, `found_of` moves with it,
and the numbers stay. Below sampling everything is the product's own way: what a step does to the episodes that were
sampled, the update of the preset, and the learner, critics and reward models with their micro-batches and losses.
Three things are not. The base and all adapters have fixed weights, uniform and so the same on every machine. Optimisers
note the gradient and then move the weights by fixed amounts, so that ratios leave 1 and critics leave 0 without AdamW,
which would divide rounding by rounding. And gradients are not clipped.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import torch
from golden.rollouts import Cast, Facts, entropy_tree, full_tree, one_each, parallel, tree
from torch import Tensor
from torch.optim import AdamW

from mas.algorithms.parts.experience.editor import QuoteEditor
from mas.algorithms.parts.options import AlgorithmOptions
from mas.algorithms.parts.rewards.interaction import paid_proposers
from mas.algorithms.parts.sampling.selection import filtered
from mas.config.custom_algorithm import method_of
from mas.config.load import load_config
from mas.config.options import Config, LoraOptions, ModelOptions, ScenarioOptions, TinyOptions
from mas.core.records import Episode
from mas.core.team import TeamSpec
from mas.graph.load import load_team
from mas.runs.resolve import resolve_training
from mas.scenarios import build_scenario
from mas.serving.model import BaseModel, load_base
from mas.training.adapters import TrainableAdapters
from mas.training.base import tiny_base
from mas.training.libraries import TrainableLibraries
from mas.training.rollout import Rollout
from mas.training.setup import TrainSetup, compiled
from mas.training.stages import rewards_of

MODEL = ModelOptions(
    tiny=TinyOptions(
        hidden=32, intermediate=64, layers=1, heads=2, kv_heads=1, steps=1, habit_steps=0, batch=2, seed=20
    ),
    lora=LoraOptions(rank=2),
)
LEARNER = ("learner.minibatches=2", "learner.clip_norm=1e9", "train.canary=false")
Found = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Case:
    """What a preset is given.

    Attributes:
        sampler: rollouts of the kind of sampling that it has, by the number of the step.
        cast: whose; `frozen`: roles that the team does not train.
        done: of each step, how many are done before it.
        words: further overrides.
    """

    sampler: Callable[[Cast, int], list[list[Facts]]] = parallel
    cast: Cast
    frozen: tuple[str, ...] = ()
    done: tuple[int, ...] = (0, 1)
    words: tuple[str, ...] = ()


def _cast(agents: str, team: str, **own: str) -> Cast:
    """`own`: role -> its terms."""
    terms = {role: names.split() for role, names in own.items()}
    return Cast(agents={name: name for name in agents.split()}, team=team.split(), own=terms, closed=("executor",))


GRID = _cast("planner executor verifier", "progress waste", planner="valid", executor="valid", verifier="verdict")
WORK = _cast("planner executor", "right", planner="follow", executor="follow")
TOOLS = _cast("planner caller summariser", "right waste", caller="format tool_name")
SEARCH = _cast(
    "rewriter selector answerer", "right found waste", rewriter="query empty", selector="choice", answerer="length"
)
REFINE = _cast("generator verifier refiner", "right", generator="answer", refiner="answer")
REFLECT = _cast("generator verifier refiner reflector", "right", generator="answer", refiner="answer")
CALLS = _cast("planner searcher reader", "right", planner="format", searcher="found", reader="found")
STACK = Cast(
    agents=GRID.agents,
    team=GRID.team,
    own={role: ["valid", "verbose", "cost_tokens"] for role in GRID.agents},
    late=("verbose",),
)
CASES: dict[str, Case] = {
    "aepo": Case(sampler=entropy_tree, cast=GRID),
    "agent_rlvr": Case(sampler=partial(parallel, by="attempt"), cast=REFINE),
    "aspo": Case(cast=TOOLS),
    "at2po": Case(sampler=entropy_tree, cast=GRID),
    "at_grpo": Case(sampler=tree, cast=GRID),
    "comas": Case(cast=_cast("solver evaluator scorer", "right", solver="score", evaluator="score", scorer="score")),
    "cory": Case(cast=_cast("pioneer observer", "right", pioneer="answer", observer="answer"), done=(4, 5)),
    "bnpo": Case(cast=GRID, words=("algorithm.options.low=-4",)),  # each failure costs 1 here
    "dpo": Case(sampler=tree, cast=GRID),
    "e_grpo": Case(cast=SEARCH),
    "flow_grpo": Case(cast=WORK, frozen=("executor",)),
    "grpo_roc": Case(cast=TOOLS),
    "hi_agent": Case(sampler=tree, cast=GRID),
    "hiersearch": Case(
        cast=_cast("planner local web refiner", "right", planner="format", local="found", web="found"),
        frozen=("refiner",),
        done=(0, 8),
    ),
    "igpo": Case(cast=SEARCH),
    "malt": Case(sampler=full_tree, cast=REFINE),
    "matpo": Case(cast=CALLS),
    "mlpo": Case(
        sampler=partial(tree, alone=("peer",)),
        cast=_cast("peer leader", "right", peer="answer", leader="answer"),
        frozen=("peer",),
    ),
    "mmoa_rag": Case(cast=SEARCH),
    "owl": Case(
        sampler=partial(tree, alone=("clerk",)),
        cast=_cast("planner clerk", "right", planner="format", clerk="found"),
        frozen=("clerk",),
    ),
    "pilotrl": Case(cast=WORK, done=(0, 5, 15)),
    "re_rest": Case(sampler=partial(tree, repairs=True), cast=REFLECT),
    "replan": Case(cast=WORK),
    "retroformer": Case(sampler=partial(parallel, by="improvement"), cast=REFLECT),
    "reward_stack": Case(cast=STACK),
    "rise": Case(sampler=tree, cast=REFINE),
    "search_self_play": Case(
        sampler=partial(one_each, many="solver", times=5),
        cast=Cast(agents={"proposer": "proposer"}, team=("accepted", "right")),
    ),
    "self_redteam": Case(
        cast=Cast(
            agents={"attacker": "attacker", "defender": "defender"},
            team=("harm", "form"),
            seats={"attacker": "attacker", "defender": "defender"},
        )
    ),
    "single_grpo": Case(cast=_cast("solo", "progress waste", solo="valid")),
    "spiral": Case(
        cast=Cast(
            agents={"player_0": "player_0", "player_1": "player_1"},
            team=("payoff",),
            seats={"player_0": "player_0", "player_1": "player_1"},
        )
    ),
    "stratified_grpo": Case(cast=SEARCH),
    "tool_learner": Case(sampler=tree, cast=TOOLS, done=(7, 8)),
    "tool_rl": Case(cast=TOOLS),
    "training_free": Case(cast=WORK),
    "waltzrl": Case(
        cast=_cast("conversation feedback", "unsafe", conversation="good", feedback="improvement label"), done=(0, 5)
    ),
}
"""Presets that need roles or sampling of their own; all others have the parallel rollouts of `GRID`."""


ASK_THE_MODEL = {"clip_delta", "comas", "cory", "empg", "mmoa_rag", "oprl", "poad", "ppo", "reinforce_pp"}
ASK_THE_MODEL |= {"reward_stack", "s_ppo", "self_redteam", "spa_rl", "st_ppo", "turn_ppo"}
"""Presets whose advantages depend on what a model says: a critic, a reward model, a KL or an entropy."""


def case_of(name: str) -> Case:
    return CASES.get(name, Case(cast=GRID))


def fill(tensors: Sequence[Tensor], seed: int, spread: float, middle: float = 0.0) -> None:
    """Fill tensors with uniform numbers."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in tensors:
            tensor.copy_(middle + (2 * torch.rand(tensor.shape, generator=generator) - 1) * spread)


def base_of() -> BaseModel:
    """A tiny base whose weights depend on no optimiser and on no normal distribution."""
    scenario = build_scenario(ScenarioOptions(name="relay"))
    base = load_base(MODEL, tiny_base(scenario, MODEL.tiny))
    for number, (name, tensor) in enumerate(sorted(base.model.named_parameters())):
        is_norm = "norm" in name
        fill([tensor], 100 + number, 0.1 if is_norm else 0.25, float(is_norm))
    return base


class RecordingAdamW(AdamW):
    """Notes the gradient, and moves each weight by a fixed amount of at most `reach`."""

    def __init__(self, parameters: Sequence[Tensor], found: list[list[float]], seed: int, reach: float) -> None:
        super().__init__(parameters)
        self._parameters, self._found, self._seed, self._reach, self._moves = list(parameters), found, seed, reach, 0

    def step(self, closure: Any = None) -> None:
        gradients = [one.grad for one in self._parameters]
        assert all(one is not None for one in gradients)
        flat = torch.cat([cast(Tensor, one).flatten() for one in gradients]).double()
        probe = torch.empty_like(flat)
        fill([probe], 7, 1.0)
        places = [len(flat) // 3, 2 * len(flat) // 3]
        self._found.append([float(flat.norm()), float(flat @ probe), *(float(flat[place]) for place in places)])
        moved = [torch.empty_like(one) for one in self._parameters]
        self._moves += 1
        fill(moved, 1000 * self._seed + self._moves, self._reach)
        with torch.no_grad():
            for one, by in zip(self._parameters, moved, strict=True):
                one.add_(by)


@dataclass
class Watched:
    """The learner of a preset, and what else it teaches, with fixed weights and optimisers that note."""

    trainable: TrainableAdapters
    gradients: dict[str, list[list[float]]] = field(default_factory=dict)
    losses: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        learner = self.trainable.learner
        self._hold(learner, {name: one.parameters() for name, one in learner.adapters.items()}, "", 0.02)
        for label, owner in self._others():
            of = {name: one.parameters() for name, one in owner.adapters.items()}
            of = getattr(owner, "parameters", of)
            self._hold(owner, of, f"{label} of ", 0.1 if label != "implicit" else 0.02)
        accumulate = learner.accumulate

        def noted(*given: Any) -> float:
            self.losses.append(accumulate(*given))
            return self.losses[-1]

        learner.accumulate = noted

    def _others(self) -> Iterator[tuple[str, Any]]:
        """Critics and reward models."""
        update: Any = self.trainable.update
        if (model := getattr(update, "model", None)) is not None:
            yield ("implicit", model.phi) if hasattr(model, "phi") else ("estimator", model.estimator)
            update = update.update
        if hasattr(update, "critic"):
            yield "critic", update.critic

    def _hold(self, owner: Any, parameters: Mapping[str, Sequence[Tensor]], label: str, reach: float) -> None:
        for number, name in enumerate(sorted(parameters)):
            fill(parameters[name], 10 + number + len(label), 0.3)
            found = self.gradients.setdefault(f"{label}{name}", [])
            owner.optimisers[name] = RecordingAdamW(parameters[name], found, number + len(label), reach)

    def take(self) -> Found:
        """What was noted since the last call."""
        found = {
            "losses": {"all": list(self.losses)},
            "gradients": {name: [one for of in own for one in of] for name, own in self.gradients.items() if own},
        }
        self.losses.clear()
        for own in self.gradients.values():
            own.clear()
        return found


def team_of(case: Case) -> TeamSpec:
    """A team of these agents, one after the other; only what it trains matters."""
    agents = [*case.cast.agents]
    roles = {role: {"template": "{x}", "trainable": role not in case.frozen} for role in case.cast.agents.values()}
    if "proposer" in roles:  # and those who attempt what it poses, who come and go
        roles, agents = roles | {"solver": {"template": "{x}", "trainable": True}}, [*agents, "solver"]
    roles[agents[-1]]["emits"] = "action"
    edges = [f"{a} -> {b}" for a, b in zip(["start", *agents], [*agents, "done"], strict=True)]
    return load_team({"name": "golden", "roles": roles, "edges": edges, "output": agents[-1]})


def setup_of(case: Case, config: Config) -> TrainSetup:
    """A setup of that team; its scenario is not looked at."""
    return replace(
        resolve_training(config.model_copy(update={"algorithm": AlgorithmOptions()})),
        algorithm=config.algorithm,
        method=method_of(config.algorithm),
        plan=compiled(team_of(case)),
    )


def episodes_of(config: Config, rollout: Rollout, case: Case, number: int, done: int, trained: Any) -> list[Episode]:
    """The episodes of a step as the update gets them: replayed, paid to who poses tasks, filtered."""
    rewards, episodes = rewards_of(config.algorithm, done), list[Episode]()
    for facts in case.sampler(case.cast, number):
        group: Sequence[Episode] = msgspec.convert(facts, list[Episode])
        if rollout.replay is not None:
            group = rollout.replay.repaired(group, done)
        if rewards.proposer is not None:
            group = paid_proposers(group, rewards.proposer)
        episodes += group
    options = config.algorithm.sampler.filter
    return episodes if options is None else filtered(episodes, options, rewards, trained)[0]


def found_of(name: str, base: BaseModel) -> Found:
    """Step by step (their names say how many were done) what a preset makes of its rollouts.

    `advantages`: role -> of its turns in order; `tokens`: adapter -> of all tokens, where they have their own;
    `losses`: update by update; `gradients`: adapter -> of every update norm, product with a fixed vector, two entries.
    """
    case = case_of(name)
    if name == "training_free":
        return _libraries(case)
    config = load_config([f"algorithm={name}", *LEARNER, *case.words])
    setup = setup_of(case, config)
    trainable = TrainableAdapters(setup, base)
    watched = Watched(trainable)
    rollout, found = Rollout(setup, cast(Any, None)), Found()
    for number, done in enumerate(case.done, 1):
        trained = trainable.assignment.trained_adapters(done)
        episodes = episodes_of(config, rollout, case, number, done, trained)
        calls = trainable.improve(cast(Any, None), episodes, trained, step=done + 1, lr_scale=1.0)
        improved = asyncio.run(calls)
        turns = [turn for episode in episodes for turn in episode.turns]
        own: dict[str, list[float]] = {}
        for turn, advantage in zip(turns, improved.advantages, strict=True):
            own.setdefault(turn.role, []).append(advantage)
        tokens: dict[str, list[float]] = {}
        for row in improved.rows:
            if row.advantages:
                tokens.setdefault(row.adapter, []).extend(row.advantages)
        kinds = {"advantages": own, "tokens": tokens, **watched.take()}
        found[f"after {done}"] = {kind: of for kind, of in kinds.items() if of}
    return found


def _libraries(case: Case) -> Found:
    """Of `training_free`, which has no gradients: role -> the lessons in its prompt."""
    config = load_config(["algorithm=training_free", "algorithm.options.editor=quote"])
    scenario = build_scenario(load_config(["scenario=relay"]).scenario)
    trainable = TrainableLibraries(setup_of(case, config))
    trainable._editor = QuoteEditor(config.algorithm.experience)
    found, players = Found(), cast(Any, SimpleNamespace(scenario=scenario))
    for number, done in enumerate(case.done, 1):
        facts = [one for group in case.sampler(case.cast, number) for one in group]
        episodes = msgspec.convert(facts, list[Episode])
        asyncio.run(
            trainable.improve(
                players, episodes, trainable.assignment.trained_adapters(done), step=done + 1, lr_scale=1.0
            )
        )
        found[f"after {done}"] = {"texts": {role: list(one.experiences) for role, one in trainable.libraries.items()}}
    return found
