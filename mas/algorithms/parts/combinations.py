"""Which parts of an algorithm do not go together, whatever each of them says by itself."""

from collections.abc import Sequence
from typing import Any, Protocol

from mas.algorithms.parts.rewards.terms import RewardOptions
from mas.algorithms.parts.sampling.options import SamplerOptions

_WHOLE = (
    "advantage.step advantage.strata advantage.early advantage.inherit reward.discount reward.of sampler.resample "
    "sampler.replay reward.model reward.gain reward.partial reward.shared reward.proposer reward.source=outcome "
    "update=training_free"
)
_BY_MORE_THAN_GROUPS = (
    "update=training_free advantage.baseline=none|running|critic reward.model reward.gain reward.partial advantage.key"
)
_STEPS = (
    "update!=policy_gradient sampler.mode=full_tree|entropy_tree sampler.refill sampler.filter sampler.replay "
    "reward.shared reward.proposer advantage.inherit advantage.key=episode stages swap fork opponents"
)
_GROUPS = (
    "advantage.key advantage.components advantage.strata advantage.step advantage.early advantage.inherit "
    "advantage.uncertainty advantage.entropy_weight advantage.whiten"
)
_RULES: tuple[tuple[str, str, str], ...] = (
    # how it is sampled
    (_WHOLE, "sampler.mode!=parallel", "that is of whole episodes, which sampler.mode=parallel plays"),
    (
        "update=preference",
        "sampler.mode=parallel|entropy_tree",
        "candidates of one prompt and state are compared: use sampler.mode=full_tree, or sampler.mode=tree with "
        "preference.value=reward",
    ),
    (
        "update=preference&preference.value=outcome",
        "sampler.mode=tree",
        "no episode is played from a candidate: use sampler.mode=full_tree, or preference.value=reward",
    ),
    ("sampler.refill sampler.filter.by=equal", _BY_MORE_THAN_GROUPS, "not only differences inside groups teach"),
    (
        "sampler.refill sampler.filter.by=equal",
        "reward.of=turn reward.discount advantage.components",
        "where all trajectories of a group are paid alike their turns, or their terms, may still differ",
    ),
    ("sampler.replay", f"{_BY_MORE_THAN_GROUPS} swap", "an earlier success is compared inside its group, as it was"),
    ("advantage.key=episode", "sampler.mode=full_tree|entropy_tree", "a turn is in many episodes there"),
    # trees
    (
        "sampler.mode=entropy_tree&update=policy_gradient",
        "-advantage.tree",
        "the ends of a tree are compared as advantage.tree says",
    ),
    ("advantage.tree", "sampler.mode!=entropy_tree", "it compares the ends of entropy trees"),
    (
        "advantage.tree",
        "advantage.key advantage.baseline advantage.scale advantage.single advantage.components reward.length "
        "loss.kl&loss.kl_in=reward",
        "the ends of a tree, whole episodes, are compared by mean and spread",
    ),
    ("sampler.mode=entropy_tree", "advantage.uncertainty sampler.filter", "a turn is read beside the rest of its tree"),
    # how it is compared
    ("advantage.baseline=none", "advantage.scale=std", "nothing is compared, so that there is no spread"),
    ("advantage.baseline=none", "advantage.key", "nothing is compared, so that there are no groups"),
    ("advantage.whiten=turns|tokens", "advantage.scale=nonzero", "whitening takes any factor of a batch out again"),
    ("advantage.baseline=running", "advantage.key!=role advantage.scale!=none", "it is a mean per role: write both"),
    ("advantage.strata", "advantage.key advantage.baseline advantage.components", "strata are groups with a mean"),
    (
        "loss.surrogate=gmpo",
        "advantage.entropy_weight advantage.baseline=critic&critic.level!=turn",
        "gmpo weighs a turn as one, and tokens have their own advantages there",
    ),
    ("advantage.baseline=critic", _GROUPS, "a critic compares with no group (its option whiten whitens)"),
    (
        "advantage.baseline=critic",
        "reward.discount reward.of=turn reward.length loss.smoothing loss.multiple_of",
        "a critic reads what every turn was paid, and learns from every token",
    ),
    (
        "advantage.components",
        "advantage.baseline advantage.scale advantage.whiten reward.length loss.kl&loss.kl_in=reward",
        "each named term is compared by mean and spread",
    ),
    (
        "advantage.single=raw",
        "advantage.baseline=none|running|critic advantage.components advantage.strata",
        "it has no effect: a group of one is not compared as a group there",
    ),
    ("reward.of=turn", "reward.discount advantage.early advantage.strata", "turns are compared by themselves"),
    ("advantage.key=prompt", "advantage.early", "turns are compared by themselves"),
    ("reward.discount", "advantage.components advantage.strata advantage.early", "turns are compared by themselves"),
    (
        "advantage.inherit",
        "reward.discount advantage.step advantage.strata advantage.key=prompt reward.of",
        "an agent must have one advantage in an episode to be inherited",
    ),
    # adapters
    ("update=training_free", "swap warm_start opponents reward.shared reward.proposer", "it trains no adapter"),
    ("swap", "policy=shared", "there is only one adapter"),
    (
        "opponents",
        "warm_start sampler.replay reward.proposer advantage.key=episode",
        "only the learner's seats are learned from, in games with changing opponents",
    ),
    ("stages", "roles", "stages name the roles of each: leave roles out"),
    (
        "fork",
        "policy=shared update=training_free swap sampler.replay advantage.baseline=critic reward.model loss.smoothing",
        "each role gets a copy of one adapter, and of nothing that is kept beside it",
    ),
    # attempts
    ("reward.of=attempt|improvement", "-sampler.attempts", "an episode is one: give sampler.attempts"),
    (
        "reward.of=improvement",
        "reward.discount advantage.step advantage.baseline=critic",
        "they read what single turns were paid",
    ),
    (
        "sampler.attempts",
        "sampler.mode=parallel&reward.of=trajectory|turn sampler.mode=full_tree|entropy_tree",
        "to fail first and then to succeed would earn more than to succeed at once: write sampler.mode=parallel with "
        "reward.of=attempt, or sampler.mode=tree",
    ),
    (
        "sampler.attempts",
        "reward.model reward.gain reward.partial advantage.early reward.shared sampler.horizon reward.source=outcome",
        "it reads whole episodes, and an episode is several attempts",
    ),
    (
        "preference.repairs&update=preference",
        "sampler.attempts.guide!=repair sampler.mode=full_tree sampler.filter",
        "a repair belongs to one failed answer: write sampler.attempts.guide=repair, sampler.mode=tree and no filter",
    ),
    # rewards
    ("reward.model", "update!=policy_gradient", "it pays what the policy gradient follows"),
    ("reward.model.joins=step", "advantage.step.value!=model", "only advantage.step.value=model reads it"),
    ("advantage.step.value=model", "reward.model.joins!=step", "it reads reward.model with joins=step"),
    ("reward.model.joins=alone", "sampler.filter", "rewards are compared as they are sampled"),
    (
        "reward.late reward.cost",
        "reward.model.joins=alone advantage.tree update=preference&preference.value=outcome "
        "update=training_free&experience.score=success",
        "it pays terms that nobody reads",
    ),
    ("reward.late.steps", _STEPS, "groups wait over steps"),
    ("reward.cost", "sampler.mode=full_tree|entropy_tree", "turns are shared among episodes"),
    (
        "reward.gain reward.partial",
        "update!=policy_gradient reward.discount reward.of advantage.key advantage.components "
        "advantage.baseline=critic",
        "that is of whole trajectories of one group",
    ),
    (
        "reward.gain",
        "advantage.baseline advantage.scale advantage.single advantage.strata advantage.inherit",
        "gains and rewards are each compared by mean and spread of their group",
    ),
    (
        "reward.shared",
        "reward.of advantage.step sampler.filter sampler.refill",
        "they read what each agent, or each turn, was paid alone",
    ),
    (
        "reward.source=outcome",
        "advantage.components advantage.step.value=own reward.late reward.shared reward.proposer "
        "reward.model&reward.model.joins!=step",
        "it pays no named term but failure",
    ),
)
"""Any of the first terms, any of the second, and why not both. `path=a|b` and `path!=a|b` compare with these values,
`path` with the default, `-path` says that it is as by default; `&` joins terms that must all hold."""


class Combined(Protocol):
    """An algorithm: `AlgorithmOptions`, which is checked by this module. The rules read its other parts by name."""

    @property
    def sampler(self) -> SamplerOptions: ...

    @property
    def reward(self) -> RewardOptions: ...

    @property
    def roles(self) -> tuple[str, ...]: ...


def invalid_reason(algorithm: Combined) -> str | None:
    """Why parts of an algorithm do not go together, or numbers and lists of it; None: they do."""
    for left, right, reason in _RULES:
        for one in left.split():
            other = next((term for term in right.split() if _holds(one, algorithm) and _holds(term, algorithm)), None)
            if other is not None:
                return f"{_shown(one, algorithm)} does not go together with {_shown(other, algorithm)}: {reason}"
    wrong = _of_numbers(algorithm.sampler, algorithm.reward.cost, algorithm.roles)
    return next((reason for reason, is_wrong in wrong.items() if is_wrong), None)


def _of_numbers(sampler: SamplerOptions, costs: Sequence[str], roles: tuple[str, ...]) -> dict[str, bool]:
    is_tree, attempts = sampler.mode == "tree", sampler.attempts
    return {
        f"sampler.branch.chains={sampler.branch.chains} whole episodes leave nothing to branch of "
        f"sampler.candidates={sampler.candidates}: write fewer chains, or more candidates": (
            sampler.mode == "entropy_tree"
            and sampler.branch.by == "rank"
            and sampler.branch.chains >= sampler.candidates
        ),
        f"what a reflector says is paid in the attempt that follows, and sampler.lookahead={sampler.lookahead} ends "
        "before it: write sampler.lookahead=episode or sampler.mode=parallel": (
            attempts is not None
            and attempts.guide == "reflector"
            and is_tree
            and sampler.lookahead != "episode"
            and (not roles or "reflector" in roles)
        ),
        "sampler.lookahead=episode adds up what the attempts after a candidate are paid, so that to fail and then to "
        "succeed earns more than to succeed at once: write sampler.lookahead=turn, or train the reflector alone "
        "(algorithm.roles=[reflector])": (
            attempts is not None and is_tree and sampler.lookahead == "episode" and roles != ("reflector",)
        ),
        "reward.cost has the same cost twice: name each once": len(set(costs)) < len(costs),
        "reward.cost=[seconds] measures requests, and candidates of sampler.mode=tree are one request: write "
        "sampler.mode=parallel, or charge tokens": "seconds" in costs and is_tree,
    }


def _holds(term: str, algorithm: Combined) -> bool:
    if "&" in term:
        return all(_holds(part, algorithm) for part in term.split("&"))
    path, mark, values = term.lstrip("-").partition("=")
    value, usual = _value(path.rstrip("!"), algorithm)
    if mark:
        return (str(value) in values.split("|")) is not path.endswith("!")
    return (bool(value) and value != usual) is not term.startswith("-")


def _value(path: str, algorithm: Combined) -> tuple[Any, Any]:
    """A value and its default; None and None: its section is not there."""
    node: Any = algorithm
    usual: Any = None
    for name in path.split("."):
        if node is None:
            return None, None
        usual = type(node).model_fields[name].default
        node = getattr(node, name)
    return node, usual


def _shown(term: str, algorithm: Combined) -> str:
    """A term as what the algorithm says, such as `reward.discount=0.9`."""
    if term.startswith("-"):
        return f"no {term[1:]}"
    path = term.split("&")[-1].partition("=")[0].rstrip("!")
    value, _ = _value(path, algorithm)
    return f"{path}={value}" if isinstance(value, str | int | float) and not isinstance(value, bool) else path
