"""Which parts of a reward do not go together, or not with how episodes are sampled and compared."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mas.config.algorithm import AlgorithmOptions


def why_unpayable(algorithm: "AlgorithmOptions") -> str | None:
    """Why parts do not go together; None: they do."""
    wrong = _of_attempts(algorithm) | _of_reward_models(algorithm) | _of_late_terms(algorithm)
    wrong |= _of_answers(algorithm) | _of_sharing(algorithm) | _of_proposers(algorithm) | _of_outcomes(algorithm)
    wrong |= _of_costs(algorithm)
    return next((reason for reason, is_wrong in wrong.items() if is_wrong), None)


def _of_attempts(algorithm: "AlgorithmOptions") -> dict[str, bool]:
    attempts, of = algorithm.sampler.attempts, algorithm.reward.of
    by_attempt, advantage = of in ("attempt", "improvement"), algorithm.advantage
    repairs = algorithm.update == "preference" and algorithm.preference.repairs
    is_there, mode = attempts is not None, algorithm.sampler.mode
    of_episodes = {
        "reward.model": algorithm.reward.model,
        "reward.gain": algorithm.reward.gain,
        "reward.partial": algorithm.reward.partial,
        "advantage.early": advantage.early,
        "reward.shared": algorithm.reward.shared or None,
        "sampler.horizon": algorithm.sampler.horizon,
    }
    return {
        f"reward.of={of} compares attempts, and an episode is one: give sampler.attempts, such as "
        "algorithm.sampler.attempts.most=2": by_attempt and attempts is None,
        f"advantage.inherit gives others the one advantage of an episode, and with reward.of={of} every attempt has "
        "its own: leave one of them out": by_attempt and advantage.inherit is not None,
        "reward.of=improvement compares an attempt with the one before, and reward.discount, advantage.step and "
        "advantage.baseline=critic read what single turns were paid: leave them out, or write reward.of=attempt": (
            of == "improvement"
            and (algorithm.reward.discount < 1 or advantage.step is not None or advantage.baseline == "critic")
        ),
        "what a reflector says is paid in the attempt that follows, and sampler.lookahead="
        f"{algorithm.sampler.lookahead} ends before it: write sampler.lookahead=episode or sampler.mode=parallel": (
            attempts is not None
            and attempts.guide == "reflector"
            and (algorithm.sampler.mode, algorithm.sampler.lookahead) in (("tree", "action"), ("tree", "turn"))
            and (not algorithm.roles or "reflector" in algorithm.roles)
        ),
        "preference.repairs imitates what the reflector did better: write sampler.attempts.guide=repair": (
            repairs and (attempts is None or attempts.guide != "repair")
        ),
        "preference.repairs takes a repair for a candidate of a failed turn, which sampler.mode=full_tree has many "
        "of: write sampler.mode=tree": repairs and algorithm.sampler.mode == "full_tree",
        "sampler.attempts with reward.of=trajectory adds up what all attempts were paid, so that to fail first and "
        "then to succeed earns more than to succeed at once: write reward.of=attempt, or reward.of=improvement": (
            is_there and mode == "parallel" and not by_attempt
        ),
        f"sampler.mode={mode} adds up what all attempts were paid, so that to fail first and then to succeed earns "
        "more than to succeed at once: write sampler.mode=parallel with reward.of=attempt, or sampler.mode=tree": (
            is_there and mode in ("full_tree", "entropy_tree")
        ),
        "sampler.lookahead=episode adds up what the attempts after a candidate are paid, so that to fail and then to "
        "succeed earns more than to succeed at once: write sampler.lookahead=turn, or train the reflector alone "
        "(algorithm.roles=[reflector])": (
            is_there
            and (mode, algorithm.sampler.lookahead) == ("tree", "episode")
            and algorithm.roles != ("reflector",)
        ),
        "preference.repairs reads the failed answers that were repaired, and sampler.filter takes their groups out: "
        "leave one of them out": repairs and algorithm.sampler.filter is not None,
    } | {
        f"{name} reads whole episodes, and sampler.attempts makes an episode of several attempts: leave one of them "
        "out": (is_there and part is not None)
        for name, part in of_episodes.items()
    }


def _of_reward_models(algorithm: "AlgorithmOptions") -> dict[str, bool]:
    """What pays turns by what it has learned, beside what reads that or cannot."""
    model, step, sampler = algorithm.reward.model, algorithm.advantage.step, algorithm.sampler
    joins = model.joins if model is not None else None
    return {
        f"reward.model tells the turns of whole episodes apart, and sampler.mode={sampler.mode} has none: write "
        "sampler.mode=parallel": model is not None and sampler.mode != "parallel",
        f"reward.model pays what the policy gradient follows, and update={algorithm.update} does not: leave one of "
        "them out": model is not None and algorithm.update != "policy_gradient",
        "reward.model.joins=step is only read by advantage.step.value=model: write it, or joins=added": (
            joins == "step" and (step is None or step.value != "model")
        ),
        "advantage.step.value=model is what reward.model with joins=step says of a turn: give reward.model a kind and "
        "joins=step, or choose value=reward": step is not None and step.value == "model" and joins != "step",
        "sampler.filter compares rewards as they are sampled, and reward.model.joins=alone puts others in their place: "
        "leave one of them out": joins == "alone" and sampler.filter is not None,
    }


def _of_late_terms(algorithm: "AlgorithmOptions") -> dict[str, bool]:
    """What judges say later, and costs, beside what does not read own terms."""
    model = algorithm.reward.model
    there = {
        "reward.late": algorithm.reward.late is not None,
        "reward.cost": bool(algorithm.reward.cost),
    }
    unread = {
        "reward.model.joins=alone puts its own term in their place": model is not None and model.joins == "alone",
        "advantage.tree reads what the ends of trees paid as they were played": algorithm.advantage.tree is not None,
        "preference.value=outcome reads who won": (
            algorithm.update == "preference" and algorithm.preference.value == "outcome"
        ),
        "experience.score=success reads who won": (
            algorithm.is_training_free and algorithm.experience.score == "success"
        ),
    }
    return {
        f"{name} pays terms that nobody reads: {reason}; leave one of them out": is_there and is_unread
        for name, is_there in there.items()
        for reason, is_unread in unread.items()
    } | _of_waiting(algorithm)


def _of_waiting(algorithm: "AlgorithmOptions") -> dict[str, bool]:
    """Turns that wait for their terms over steps, beside what reads whole steps or episodes."""
    late, sampler, reward, advantage = algorithm.reward.late, algorithm.sampler, algorithm.reward, algorithm.advantage
    readers = {
        f"update={algorithm.update} does not weigh older turns by their ratio": algorithm.update != "policy_gradient",
        f"sampler.mode={sampler.mode} compares whole trees": sampler.mode in ("full_tree", "entropy_tree"),
        "sampler.refill, sampler.filter and sampler.replay judge groups as they are sampled": (
            sampler.refill > 0 or sampler.filter is not None or sampler.replay is not None
        ),
        "reward.shared, reward.proposer, advantage.inherit and advantage.key=episode read all agents of an episode": (
            reward.shared or reward.proposer is not None or advantage.inherit is not None or advantage.key == "episode"
        ),
        "algorithm.stages, algorithm.swap and algorithm.fork change which adapter a role trains": (
            bool(algorithm.stages) or algorithm.swap is not None or algorithm.fork is not None
        ),
        "algorithm.opponents notes games as they are played": algorithm.opponents is not None,
    }
    return {
        f"reward.late.steps={late.steps if late else 0} lets groups wait over steps, and {reason}: leave one of them "
        "out": late is not None and late.steps > 0 and is_there
        for reason, is_there in readers.items()
    }


def _of_costs(algorithm: "AlgorithmOptions") -> dict[str, bool]:
    costs, mode = algorithm.reward.cost, algorithm.sampler.mode
    return {
        "reward.cost has the same cost twice: name each once": len(set(costs)) < len(costs),
        f"reward.cost charges single turns as they are drawn, and sampler.mode={mode} shares turns among episodes: "
        "write sampler.mode=tree or parallel": bool(costs) and mode in ("full_tree", "entropy_tree"),
        "reward.cost=[seconds] measures requests, and candidates of sampler.mode=tree are one request: write "
        "sampler.mode=parallel, or charge tokens": "seconds" in costs and mode == "tree",
    }


def _of_answers(algorithm: "AlgorithmOptions") -> dict[str, bool]:
    """What reads the task's right answer, beside what would not be compared with it."""
    advantage, reward = algorithm.advantage, algorithm.reward
    names = {"reward.gain": reward.gain is not None, "reward.partial": reward.partial is not None}
    is_apart = reward.discount < 1 or reward.of != "trajectory" or advantage.key != "group"
    compares = (advantage.baseline, advantage.scale, advantage.single) != ("mean", "std", "zero")
    shapes = advantage.components or advantage.strata is not None or advantage.inherit is not None
    reasons = {
        "{} reads whole episodes: write sampler.mode=parallel": algorithm.sampler.mode != "parallel",
        "{} is read by update=policy_gradient alone: leave it out": algorithm.update != "policy_gradient",
        "{} is of whole trajectories of one group: leave reward.discount, reward.of and advantage.key as they are": (
            is_apart
        ),
        "{} is no named term and nothing that a critic reads: leave advantage.components and baseline=critic out": (
            advantage.components or advantage.baseline == "critic"
        ),
    }
    return {
        reason.format(name): is_there and is_wrong
        for name, is_there in names.items()
        for reason, is_wrong in reasons.items()
    } | {
        "reward.gain compares gains and rewards each by mean and spread of their group: leave advantage.baseline, "
        "scale, single, components, strata and inherit as they are": names["reward.gain"] and (compares or shapes),
    }


def _of_sharing(algorithm: "AlgorithmOptions") -> dict[str, bool]:
    is_shared, is_of_turns = algorithm.reward.shared, algorithm.reward.of != "trajectory"
    return {
        "reward.shared pays each agent what the others earned in its episode, and candidates of one decision share no "
        "episode: write sampler.mode=parallel": is_shared and algorithm.sampler.mode != "parallel",
        "reward.shared adds up whole episodes, and reward.of and advantage.step read what parts of them were paid: "
        "leave one of them out": is_shared and (is_of_turns or algorithm.advantage.step is not None),
        "sampler.filter and sampler.refill judge groups by what each agent was paid alone, and reward.shared pays "
        "something else: leave one of them out": (
            is_shared and (algorithm.sampler.filter is not None or algorithm.sampler.refill > 0)
        ),
        "reward.shared changes what adapters learn from, and update=training_free trains none: leave it out": (
            is_shared and algorithm.is_training_free
        ),
    }


def _of_outcomes(algorithm: "AlgorithmOptions") -> dict[str, bool]:
    """What reads named terms, or has none of whole episodes, beside a reward that is the outcome alone."""
    reward, advantage, model = algorithm.reward, algorithm.advantage, algorithm.reward.model
    is_there, mode = reward.source == "outcome", algorithm.sampler.mode
    readers = {
        "advantage.components compares named terms": advantage.components,
        "advantage.step.value=own is what roles are paid of their own": (
            advantage.step is not None and advantage.step.value == "own"
        ),
        "reward.late": reward.late is not None,
        "reward.shared": reward.shared,
        "reward.proposer": reward.proposer is not None,
        "reward.model, but with joins=step, is an own term": model is not None and model.joins != "step",
        "sampler.attempts makes an episode of several attempts": algorithm.sampler.attempts is not None,
    }
    return {
        f"reward.source=outcome pays whether a whole episode succeeded, and sampler.mode={mode} compares parts: write "
        "sampler.mode=parallel": is_there and mode != "parallel",
    } | {
        f"reward.source=outcome pays no named term but failure, and {reader}: leave one of them out": is_there and found
        for reader, found in readers.items()
    }


def _of_proposers(algorithm: "AlgorithmOptions") -> dict[str, bool]:
    is_there, mode = algorithm.reward.proposer is not None, algorithm.sampler.mode
    return {
        "reward.proposer reads how the attempts of a whole episode went, and candidates of one decision share none: "
        f"write sampler.mode=parallel in place of {mode}": is_there and mode != "parallel",
        "reward.proposer changes what adapters learn from, and update=training_free trains none: leave it out": (
            is_there and algorithm.is_training_free
        ),
    }
