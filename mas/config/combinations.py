"""Which parts of an algorithm do not go together, whatever each of them says by itself."""

from typing import TYPE_CHECKING

from mas.config.reward_combinations import why_unpayable

if TYPE_CHECKING:
    from mas.config.algorithm import AdvantageOptions, AlgorithmOptions


def why_senseless(algorithm: "AlgorithmOptions") -> str | None:
    """Why parts do not go together; None: they do."""
    wrong = _of_sampling(algorithm) | _of_comparing(algorithm) | _of_turns(algorithm) | _of_updates(algorithm)
    wrong |= _of_trees(algorithm) | _of_forks(algorithm) | _of_opponents(algorithm)
    return next((reason for reason, is_wrong in wrong.items() if is_wrong), None) or why_unpayable(algorithm)


def why_single_idle(advantage: "AdvantageOptions") -> str | None:
    """Why a group of one gets nothing by `advantage.single`; None: it does."""
    if advantage.baseline in ("none", "running", "critic"):
        return f"advantage.baseline={advantage.baseline} compares with no group"
    slots = {"components": advantage.components, "strata": advantage.strata is not None}
    name = next((name for name, is_there in slots.items() if is_there), None)
    return f"with advantage.{name} a group of one gets 0" if name is not None else None


def _of_sampling(algorithm: "AlgorithmOptions") -> dict[str, bool]:
    sampler = algorithm.sampler
    is_tree, is_preference = sampler.mode != "parallel", algorithm.update == "preference"
    by_groups = {
        "sampler.refill": sampler.refill > 0,
        "sampler.filter.by=equal": sampler.filter is not None and sampler.filter.by == "equal",
    }
    other = _why_not_by_groups(algorithm)
    return {
        "update=preference compares candidates of one prompt and state, and sampler.mode=parallel has none; use "
        "sampler.mode=full_tree, or sampler.mode=tree with preference.value=reward": is_preference and not is_tree,
        "preference.value=outcome is the share of won episodes below a candidate, and sampler.mode=tree plays none "
        "from it; use sampler.mode=full_tree, or preference.value=reward": (
            is_preference and sampler.mode == "tree" and algorithm.preference.value == "outcome"
        ),
        "advantage.step, advantage.strata, advantage.early, advantage.inherit, reward.discount and reward.of need "
        "trajectories of many turns: write sampler.mode=parallel; in tree sampling every turn is a trajectory of its "
        "own": (is_tree and _needs_trajectories(algorithm)),
        "sampler.resample keeps some of many whole episodes: write sampler.mode=parallel": (
            is_tree and sampler.resample is not None
        ),
        "sampler.replay puts whole episodes into groups of them: write sampler.mode=parallel": (
            is_tree and sampler.replay is not None
        ),
        f"sampler.replay gives groups without a success something to be compared with, and {other} compares with no "
        "such group: leave sampler.replay out": sampler.replay is not None and other is not None,
        "sampler.replay keeps what roles said through their adapters, and algorithm.swap exchanges these: leave one of "
        "them out": sampler.replay is not None and algorithm.swap is not None,
    } | {
        f"{name} leaves out what cannot be learned from differences inside groups, and {other} learns from others as "
        f"well: leave {name} out": is_there and other is not None
        for name, is_there in by_groups.items()
    }


def _of_trees(algorithm: "AlgorithmOptions") -> dict[str, bool]:
    """What an entropy tree asks for."""
    sampler, advantage, tree = algorithm.sampler, algorithm.advantage, algorithm.advantage.tree
    is_grown = sampler.mode == "entropy_tree"
    usual = ("group", "mean", "std", "zero", False)
    return {
        "sampler.mode=entropy_tree compares the ends of a tree, and advantage.tree says how: write "
        "advantage.tree.backup=child_softmax, child_mean or leaf_mean": (
            is_grown and tree is None and algorithm.update == "policy_gradient"
        ),
        "advantage.tree compares the ends of entropy trees: write sampler.mode=entropy_tree, or leave tree out": (
            tree is not None and not is_grown
        ),
        "advantage.tree compares the ends of a tree by mean and spread: leave advantage.key, baseline, scale, single "
        "and components as they are": tree is not None
        and (advantage.key, advantage.baseline, advantage.scale, advantage.single, advantage.components) != usual,
        "advantage.tree compares whole episodes, which reward.length and a KL in the reward do not change: leave "
        "reward.length out, and write loss.kl_in=loss": (
            tree is not None
            and (algorithm.reward.length is not None or (algorithm.loss.kl > 0 and algorithm.loss.kl_in == "reward"))
        ),
        "advantage.uncertainty reads the next turn of a trajectory, and in entropy trees every turn is one of its own: "
        "leave it out": is_grown and advantage.uncertainty is not None,
        "sampler.filter would take turns out of the midst of trees: leave it out, or choose another sampler.mode": (
            is_grown and sampler.filter is not None
        ),
        "update=preference compares candidates of one prompt and state, and the branches of sampler.mode=entropy_tree "
        "are too few for that: use sampler.mode=full_tree": is_grown and algorithm.update == "preference",
        f"sampler.branch.chains={sampler.branch.chains} whole episodes leave nothing to branch of "
        f"sampler.candidates={sampler.candidates}: write fewer chains, or more candidates": (
            is_grown and sampler.branch.by == "rank" and sampler.branch.chains >= sampler.candidates
        ),
    }


def _why_not_by_groups(algorithm: "AlgorithmOptions") -> str | None:
    """What learns from more than differences inside sampled groups; None: nothing does."""
    advantage = algorithm.advantage
    if algorithm.update == "training_free":
        return "update=training_free"
    if advantage.baseline in ("none", "running", "critic"):
        return f"advantage.baseline={advantage.baseline}"
    parts = {
        "reward.model": algorithm.reward.model,
        "reward.gain": algorithm.reward.gain,
        "reward.partial": algorithm.reward.partial,
    }
    for name, part in parts.items():
        if part is not None:
            return name
    return f"advantage.key={advantage.key}" if advantage.key != "group" else None


def _of_comparing(algorithm: "AlgorithmOptions") -> dict[str, bool]:
    advantage, has_critic = algorithm.advantage, algorithm.advantage.baseline == "critic"
    return {
        "advantage.key=episode compares agents of one role in one episode, or all candidates of a role in one tree: "
        "write sampler.mode=parallel or sampler.mode=tree": (
            advantage.key == "episode" and algorithm.sampler.mode not in ("parallel", "tree")
        ),
        "advantage.baseline=none compares nothing, so advantage.scale=std has no meaning: choose scale=none": (
            advantage.baseline == "none" and advantage.scale == "std"
        ),
        "advantage.baseline=running is a mean per role: write advantage.key=role and advantage.scale=none": (
            advantage.baseline == "running" and (advantage.key != "role" or advantage.scale != "none")
        ),
        "advantage.strata compares in groups and by their mean: leave key, baseline and components as they are": (
            advantage.strata is not None
            and (advantage.key, advantage.baseline, advantage.components) != ("group", "mean", False)
        ),
        "advantage.entropy_weight gives every token its advantage, but loss.surrogate=gmpo weighs a turn as one: leave "
        "it out, or choose another surrogate": (advantage.entropy_weight > 0 and algorithm.loss.surrogate == "gmpo"),
        f"critic.level={algorithm.critic.level} gives every token its advantage, but loss.surrogate=gmpo weighs a turn "
        "as one: write critic.level=turn, or another surrogate": (
            advantage.baseline == "critic" and algorithm.critic.level != "turn" and algorithm.loss.surrogate == "gmpo"
        ),
        "advantage.baseline=critic compares with no group: leave advantage.key, components, strata, step, early, "
        "inherit, uncertainty, entropy_weight and whiten (critic.whiten has it) as they are": (
            advantage.baseline == "critic" and _compares(advantage)
        ),
        "advantage.baseline=critic reads what every turn was paid, which reward.discount and reward.length do not "
        "change: leave them out (critic.gamma discounts)": (
            has_critic and (algorithm.reward.discount < 1 or algorithm.reward.length is not None)
        ),
        "loss.smoothing is not there with advantage.baseline=critic: leave it out, or choose another baseline": (
            has_critic and algorithm.loss.smoothing is not None
        ),
        "loss.multiple_of is not there with advantage.baseline=critic: leave it out, or choose another baseline": (
            has_critic and algorithm.loss.multiple_of is not None
        ),
        "advantage.components compares each term by mean and spread: leave baseline, scale and whiten as they are": (
            advantage.components and (advantage.baseline, advantage.scale, advantage.whiten) != ("mean", "std", "none")
        ),
        "advantage.components compares terms, and reward.length and a KL in the reward are none: leave reward.length "
        "out, and write loss.kl_in=loss": (
            advantage.components
            and (algorithm.reward.length is not None or (algorithm.loss.kl > 0 and algorithm.loss.kl_in == "reward"))
        ),
        f"advantage.single=raw has no effect here: {why_single_idle(advantage)}; leave single out": (
            advantage.single == "raw" and why_single_idle(advantage) is not None
        ),
    }


def _of_turns(algorithm: "AlgorithmOptions") -> dict[str, bool]:
    """What has one value for a trajectory, beside what gives its turns different ones."""
    advantage, discount, is_own = algorithm.advantage, algorithm.reward.discount, algorithm.reward.of == "turn"
    whole = {
        "components": advantage.components,
        "strata": advantage.strata is not None,
        "early": advantage.early is not None,
    }
    apart = {
        f"reward.discount={discount:g}": discount < 1,
        "advantage.step": advantage.step is not None,
        "advantage.strata": advantage.strata is not None,
        "advantage.key=prompt": advantage.key == "prompt",
        "reward.of=turn": is_own,
    }
    return (
        {
            "reward.of=turn compares what each turn was paid, and reward.discount its share of the whole: choose one": (
                is_own and discount < 1
            ),
            "reward.of=turn or advantage.key=prompt compares turns, and advantage.early whole episodes: choose one": (
                advantage.early is not None and (is_own or advantage.key == "prompt")
            ),
            "reward.of=turn compares turns, and advantage.strata trajectories by their length: choose one": (
                is_own and advantage.strata is not None
            ),
        }
        | {
            f"reward.discount={discount:g} compares every turn by itself, advantage.{name} whole trajectories: leave "
            "one of them out": is_there and discount < 1
            for name, is_there in whole.items()
        }
        | {
            f"advantage.inherit gives other agents the one advantage that its agent has in an episode; with {name} its "
            "turns are not compared as one: leave one of them out": is_there and advantage.inherit is not None
            for name, is_there in apart.items()
        }
    )


def _of_updates(algorithm: "AlgorithmOptions") -> dict[str, bool]:
    return {
        f"update=training_free compares whole episodes of a task, and "
        f"sampler.mode={algorithm.sampler.mode} plays one: write sampler.mode=parallel": algorithm.is_training_free
        and algorithm.sampler.mode != "parallel",
        "algorithm.swap exchanges adapters, and update=training_free has none: leave it out": (
            algorithm.is_training_free and algorithm.swap is not None
        ),
        "algorithm.swap exchanges adapters, and policy=shared has only one: write policy=per_role": (
            algorithm.swap is not None and algorithm.policy == "shared"
        ),
        "algorithm.warm_start trains adapters, and update=training_free has none: leave it out": (
            algorithm.is_training_free and algorithm.warm_start is not None
        ),
        "algorithm.warm_start imitates games in which the team plays all seats, and algorithm.opponents plays some of "
        "them: leave one of them out": algorithm.warm_start is not None and algorithm.opponents is not None,
        "algorithm.opponents plays against adapters in training, and update=training_free trains none: leave it out": (
            algorithm.is_training_free and algorithm.opponents is not None
        ),
        "sampler.replay puts successes of earlier steps into a group, and with algorithm.opponents these were won "
        "against another opponent or in another seat: leave one of them out": (
            algorithm.sampler.replay is not None and algorithm.opponents is not None
        ),
        "algorithm.stages names the roles of each stage, so algorithm.roles has no effect: leave roles out": (
            bool(algorithm.roles and algorithm.stages)
        ),
    }


def _of_forks(algorithm: "AlgorithmOptions") -> dict[str, bool]:
    """Adapters that begin as copies of one, beside what is kept for each adapter or has only one."""
    is_forked = algorithm.fork is not None
    parts = {
        "policy=shared has one adapter to the end": algorithm.policy == "shared",
        "update=training_free has none": algorithm.is_training_free,
        "algorithm.swap exchanges adapters, which are all equal before it": algorithm.swap is not None,
        "sampler.replay keeps what roles said through the one adapter": algorithm.sampler.replay is not None,
        "advantage.baseline=critic has a critic for each adapter, which is not copied": (
            algorithm.advantage.baseline == "critic"
        ),
        "reward.model has one for each adapter, which is not copied": algorithm.reward.model is not None,
        "loss.smoothing keeps entropies of each adapter, which are not copied": algorithm.loss.smoothing is not None,
    }
    return {
        f"algorithm.fork gives each role a copy of one adapter, and {reason}: leave one of them out": is_forked
        and is_there
        for reason, is_there in parts.items()
    }


def _of_opponents(algorithm: "AlgorithmOptions") -> dict[str, bool]:
    """Opponents, whose turns are not kept, beside what reads those of all seats."""
    readers = {
        "reward.proposer reads how all others fared in an episode": algorithm.reward.proposer is not None,
        "advantage.key=episode compares all agents of one role in an episode": algorithm.advantage.key == "episode",
    }
    return {
        f"algorithm.opponents leaves only the turns of the learner's seats in an episode, and {reader}: leave one of "
        "them out": algorithm.opponents is not None and is_there
        for reader, is_there in readers.items()
    }


def _needs_trajectories(algorithm: "AlgorithmOptions") -> bool:
    advantage = algorithm.advantage
    slots = (advantage.step, advantage.strata, advantage.early, advantage.inherit)
    return (
        any(slot is not None for slot in slots) or algorithm.reward.discount < 1 or algorithm.reward.of != "trajectory"
    )


def _compares(advantage: "AdvantageOptions") -> bool:
    slots = (advantage.strata, advantage.step, advantage.early, advantage.inherit, advantage.uncertainty)
    is_usual = (advantage.key, advantage.components, advantage.whiten, advantage.entropy_weight) == (
        *("group", False, "none"),
        0,
    )
    return not is_usual or any(slot is not None for slot in slots)
