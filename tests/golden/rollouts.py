"""Fixed rollouts for the golden record, as plain data: nothing of `mas` is used to make them.

Every number is drawn from `random.Random`, whose `random()` is the same on every machine; terms are quarters, so that
their sums are exact. An episode is a dict with the fields of `mas.core.records.Episode`, its turns are dicts with those
of `Turn`. What a sampler would have to keep to holds: rewards are sums or means of what was paid, groups, trajectories
and parents are those of the kind of sampling.

There are: roles that are silent in some team turns or speak twice in one, episodes of one to three team turns, groups
of which all are paid the same, of a single member, and with an episode that failed; outputs that do not parse, tool
calls before and after the first success, equal prompts and equal states of several episodes, late terms that came for
some episodes only, and completions of one to four tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from statistics import fmean
from typing import Any

Facts = dict[str, Any]
LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz "
CHOICES = (8, 9, 10, 11)


@dataclass(frozen=True, kw_only=True)
class Cast:
    """Who speaks, in this order in each team turn.

    Attributes:
        agents: agent -> its role. team: terms that the world pays. own: role -> its own terms. seats: agent -> its
            seat, where there are several; seats are paid differently.
        late: own terms that every other episode lacks.
        closed: roles whose outputs are one of `CHOICES`, which ends the text.
    """

    agents: Mapping[str, str]
    team: Sequence[str]
    own: Mapping[str, Sequence[str]] = field(default_factory=dict)
    seats: Mapping[str, str] = field(default_factory=dict)
    late: Sequence[str] = ()
    closed: Sequence[str] = ()


class Draw:
    """Numbers of one rollout, by its name."""

    def __init__(self, *name: object) -> None:
        self._random = Random("/".join(map(str, name)))

    def below(self, count: int) -> int:
        return int(self._random.random() * count)

    def chance(self, share: float) -> bool:
        return self._random.random() < share

    def near(self, middle: float, spread: float) -> float:
        return middle + (2 * self._random.random() - 1) * spread

    def quarter(self) -> float:
        """0 to 1, in quarters."""
        return self.below(5) / 4


def prompt_of(task: str, agent: str, turn: int) -> list[int]:
    """The same for all that an agent is asked in a team turn of a task; prompts of a task begin alike."""
    first, own = Draw("prompt", task), Draw("prompt", task, agent, turn)
    return [3 + first.below(60) for _ in range(5)] + [3 + own.below(60) for _ in range(2 + turn)]


def of_task(task: str, agent: str) -> Facts:
    """The group of all episodes of a task as one agent played them."""
    return {"kind": "task", "task": task, "agent": agent}


def decision(task: str, episode: str, agent: str, turn: int, state: str, path: str = "") -> Facts:
    """The group of one decision."""
    place = {"episode": episode, "turn": turn, "state": state, "path": path}
    return {"kind": "decision", "task": task, "agent": agent, **place}


def output(draw: Draw, cast: Cast, role: str, number: int = 0) -> Facts:
    """What one request brought back. Log-probabilities are near those of a base that knows nothing."""
    choices = CHOICES if role in cast.closed else ()
    ids = [CHOICES[draw.below(4)], 1] if choices else [3 + draw.below(60) for _ in range(1 + draw.below(4))]
    return {
        "completion_ids": ids,
        "logprobs": [draw.near(-4.4, 0.6) for _ in ids],
        "choices": choices,
        "temperature": 0.7 if number % 3 == 2 else 1.0,
        "text": "".join(LETTERS[one % len(LETTERS)] for one in ids),
        "failure": "no such form" if draw.chance(0.15) else None,
        "finish": "length",
        "seed": draw.below(1000),
    }


def turn(episode: str, task: str, agent: str, role: str, at: int, **more: Any) -> Facts:
    """A record with what all kinds of sampling have in common."""
    visit = more.get("visit", 0)
    return {
        "id": f"{episode}/{at}/{agent}/{visit}/{more.get('candidate', 0)}",
        "episode": episode,
        "task": task,
        "agent": agent,
        "role": role,
        "turn": at,
        "visit": visit,
        "candidate": 0,
        "parent": None,
        "prompt_ids": prompt_of(task, agent, at),
        "adapter": {"name": role, "version": 0},
        "rewards": {},
        "chosen": True,
        **more,
    }


def episode_of(episode: str, task: str, turns: Sequence[Facts], *, success: bool, **more: Any) -> Facts:
    """An episode with these turns."""
    return {
        "id": episode,
        "task": task,
        "success": success,
        "turns": list(turns),
        "lines": [
            {"turn": one["turn"], "agent": one["agent"], "prompt": f"{task} {one['turn']}>", "text": one["text"]}
            for one in turns
        ],
        "rewards": {},
        "prompt_tokens": sum(len(one["prompt_ids"]) for one in turns),
        "completion_tokens": sum(len(one["completion_ids"]) for one in turns),
        "calls": len(turns),
        **more,
    }


def failed_episode(episode: str, task: str) -> Facts:
    """An episode that could not be played."""
    return episode_of(episode, task, (), success=False, status="failed", cause="the engine gave no answer")


def own_terms(draw: Draw, cast: Cast, role: str, said: Facts, *, flat: bool, late: bool) -> dict[str, float]:
    """What a role is paid for one output."""
    names = [name for name in cast.own.get(role, ()) if late or name not in cast.late]
    terms = {f"own.{name}": 0.0 if flat else draw.quarter() for name in names}
    return terms | ({"own.failure": -1.0} if said["failure"] is not None and not flat else {})


def add_terms(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Sums by name."""
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: sum(part.get(name, 0.0) for part in parts) for name in names}


def parallel(cast: Cast, step: int, by: str = "episode") -> list[list[Facts]]:
    """Whole episodes of four tasks: of the third, which the step before had, all fail and are paid nothing, and of the
    last task one could not be played.

    `by`: what a trajectory is: an `episode`, or one `attempt` in it, which is a team turn, paid for itself or as an
    `improvement` on the one before.
    """
    groups = []
    for number, count in enumerate((4, 4, 3, 2)):
        task = f"task-{step - 1}-0" if number == 2 else f"task-{step}-{number}"
        names = [f"{task}#{step}{k}" for k in range(count)]
        own = [_parallel(cast, task, name, k, flat=number == 2, by=by) for k, name in enumerate(names)]
        groups.append([*own[:1], failed_episode(names[1], task)] if number == 3 else own)
    return groups


def _parallel(cast: Cast, task: str, episode: str, number: int, *, flat: bool, by: str) -> Facts:
    draw, turns, team = Draw("parallel", episode), [], []
    success = not flat and draw.chance(0.5)
    length = 1 + draw.below(3) if by == "episode" else 2
    seats = dict.fromkeys(cast.seats.values()) or {"team": None}
    for at in range(length):
        paid = {seat: {f"team.{one}": 0.0 if flat else draw.quarter() for one in cast.team} for seat in seats}
        team.append(paid)
        speakers = [one for place, one in enumerate(cast.agents) if place != 1 or not draw.chance(0.25)]
        if draw.chance(0.3):
            speakers.append(speakers[0])
        for place, agent in enumerate(speakers):
            role = cast.agents[agent]
            said = output(draw, cast, role, len(turns))
            terms = own_terms(draw, cast, role, said, flat=flat, late=number % 2 == 0)
            own_turn = turn(
                episode, task, agent, role, at, visit=speakers[:place].count(agent), candidate=number,
                parent=turns[-1]["id"] if turns else None, group=of_task(task, agent), trajectory=episode,
                facts={
                    "Anchor": {"state": f"{task}/{at}/{agent}/{draw.below(2) if at else 0}"},
                    "Grounded": {"is_grounded": said["failure"] is None and draw.chance(0.7)},
                    "ToolUse": {"calls": int(draw.chance(0.4)), "errors": int(draw.chance(0.2))},
                    "Wave": {"number": len(turns)},
                },
                paid=terms, world="world", **said,
            )  # fmt: skip
            turns.append(own_turn)
    _pay(cast, turns, team, success=success, by=by)
    knowledge = [draw.near(-1.5, 1.2) for _ in turns]
    facts = {"AnswerKnowledge": {"logprobs": knowledge}, "EntityRate": {"share": draw.quarter()}}
    return episode_of(episode, task, turns, success=success, length=length, facts=facts)


def _pay(cast: Cast, turns: list[Facts], team: Sequence[Facts], *, success: bool, by: str) -> None:
    """The team's terms to the turns that they came after, and to every turn what its trajectory is paid."""
    for agent in cast.agents:
        seat = cast.seats.get(agent, "team")
        mine = [one for one in turns if one["agent"] == agent]
        for part in _parts(mine, by):
            before = team[part[0]["turn"] - 1][seat] if by == "improvement" and part[0]["turn"] else {}
            spoken = [one["turn"] for one in part]
            span = range(len(team)) if by == "episode" else spoken[:1]
            for at in span:
                place = max((n for n, one in enumerate(spoken) if one <= at), default=0)
                part[place]["paid"] = add_terms([team[at][seat], part[place]["paid"]])
            own = add_terms([{k: v for k, v in one["paid"].items() if not k.startswith("team.")} for one in part])
            now = add_terms([team[at][seat] for at in span])
            rewards = {name: value - before.get(name, 0.0) for name, value in now.items()} | own
            for one in part:
                one["rewards"] = {**rewards, "outcome": float(success)}
                if by != "episode":
                    one["group"] = {**one["group"], "attempt": one["turn"]}
                    one["trajectory"] += f"/{one['turn']}"
            part[-1]["paid"]["outcome"] = float(success)


def _parts(turns: Sequence[Facts], by: str) -> list[list[Facts]]:
    if by == "episode":
        return [list(turns)] if turns else []
    return [[one for one in turns if one["turn"] == at] for at in dict.fromkeys(one["turn"] for one in turns)]


def tree(cast: Cast, step: int, alone: Sequence[str] = (), repairs: bool = False) -> list[list[Facts]]:
    """Three candidates of every decision, two team turns of each of four tasks; the last task failed.

    `alone`: roles of which one candidate is drawn. `repairs`: the second team turn is of a `reflector` alone, who
    repairs what the last one chosen in the first said.
    """
    groups = []
    for number in range(4):
        task, episode = f"task-{step}-{number}", f"task-{step}-{number}#{step}"
        if number == 3:
            groups.append([failed_episode(episode, task)])
            continue
        draw, turns, parent = Draw("tree", episode), list[Facts](), None
        for at in range(2):
            speakers = [agent for agent in cast.agents if not repairs or (agent == "reflector") == (at == 1)]
            for place, agent in enumerate(speakers):
                role, flat = cast.agents[agent], place == 1 and at == number
                own = [
                    _candidate(draw, cast, task, episode, agent, at, k, parent, flat=flat)
                    for k in range(1 if role in alone else 3)
                ]
                best = max(own, key=lambda one: sum(one["rewards"].values()))
                best["chosen"] = True
                parent = best["id"]
                turns += own
        groups.append([episode_of(episode, task, turns, success=draw.chance(0.5))])
    return groups


def _candidate(
    draw: Draw, cast: Cast, task: str, episode: str, agent: str, at: int, k: int, parent: str | None, *, flat: bool
) -> Facts:
    role, state = cast.agents[agent], f"{task}/{at}/{agent}"
    said = output(draw, cast, role, at)
    team = {f"team.{name}": 0.0 if flat else draw.quarter() for name in cast.team}
    terms = team | own_terms(draw, cast, role, said, flat=flat, late=True)
    named = f"{episode}/{at}/{agent}/0/{k}"
    return turn(
        episode, task, agent, role, at, candidate=k, parent=parent, trajectory=named,
        group=decision(task, episode, agent, at, state), rewards=terms, chosen=False, **said,
    )  # fmt: skip


def full_tree(cast: Cast, step: int) -> list[list[Facts]]:
    """One team turn of each of two tasks with three candidates at every decision, all carried on: a candidate's terms
    are means over the ends below it."""
    groups = []
    for number in range(2):
        task, episode = f"task-{step}-{number}", f"task-{step}-{number}#{step}"
        draw, turns = Draw("full tree", episode), list[Facts]()
        _grow(draw, cast, task, episode, list(cast.agents), "", None, turns)
        groups.append([episode_of(episode, task, turns, success=draw.chance(0.5))])
    return groups


def _grow(
    draw: Draw, cast: Cast, task: str, episode: str, left: list[str], path: str, parent: str | None, turns: list[Facts]
) -> dict[str, float]:
    """The turns below a path; returns the means of what its ends are paid."""
    if not left:
        return {"outcome": float(draw.chance(0.4)), **{f"team.{name}": draw.quarter() for name in cast.team}}
    agent, *rest = left
    role, found = cast.agents[agent], []
    for k in range(3):
        named, said = f"{episode}{path}/0/{agent}/0/{k}", output(draw, cast, role)
        own = turn(
            episode, task, agent, role, 0, candidate=k, parent=parent, trajectory=named,
            group=decision(task, episode, agent, 0, path, path), chosen=not path.strip(".0") and not k, **said,
        )  # fmt: skip
        own["id"] = named
        turns.append(own)
        below = _grow(draw, cast, task, episode, rest, f"{path}.{k}", named, turns)
        own["rewards"] = below | own_terms(draw, cast, role, said, flat=False, late=True)
        found.append(below)
    return {name: fmean(one[name] for one in found) for name in found[0]}


def entropy_tree(cast: Cast, step: int) -> list[list[Facts]]:
    """Four episodes of each of two tasks, of which three branch off from another one."""
    groups = []
    for number in range(2):
        task = f"task-{step}-{number}"
        draw, nodes, chains = Draw("entropy tree", task), list[Facts](), list[list[Facts]]()
        for chain, (source, keep) in enumerate(((None, 0), (0, 1), (0, 3), (1, 2))):
            said = list(chains[source][:keep]) if source is not None else []
            for place in range(keep, 2 * len(cast.agents)):
                at, agent = place // len(cast.agents), list(cast.agents)[place % len(cast.agents)]
                role, episode = cast.agents[agent], f"{task}#{chain}"
                node = turn(
                    episode, task, agent, role, at, candidate=chain, parent=said[-1]["id"] if said else None,
                    group={"kind": "tree", "task": task, "agent": agent, "episode": str(step)},
                    trajectory=f"{episode}/{at}/{agent}/0/{chain}",
                    **output(draw, cast, role),
                )  # fmt: skip
                nodes.append(node)
                said.append(node)
            chains.append(said)
        ends = [_end(draw, cast) for _ in chains]
        for node in nodes:
            below = [end[node["agent"]] for end, chain in zip(ends, chains, strict=True) if node in chain]
            node["rewards"] = {name: fmean(one.get(name, 0.0) for one in below) for name in below[0]}
            last = [end for end, chain in zip(ends, chains, strict=True) if chain[-1] is node]
            node["facts"] = {"TreeEnds": {"ends": last}}
        groups.append(
            [
                episode_of(name, task, [one for one in nodes if one["episode"] == name], success=draw.chance(0.5))
                for name in (f"{task}#{chain}" for chain in range(4))
            ]
        )
    return groups


def _end(draw: Draw, cast: Cast) -> dict[str, dict[str, float]]:
    """What an episode is worth to every agent."""
    team = {f"team.{name}": draw.quarter() for name in cast.team}
    return {
        agent: team | {f"own.{name}": draw.quarter() for name in cast.own.get(role, ())}
        for agent, role in cast.agents.items()
    }


def one_each(cast: Cast, step: int, many: str, times: int) -> list[list[Facts]]:
    """Episodes in which every agent has one turn. `times` agents have the role `many`, in the last episode none."""
    groups = []
    for number in range(3):
        task, own = f"task-{step}-{number}", []
        for k in range(2):
            episode = f"{task}#{step}{k}"
            draw, turns = Draw("one each", episode), list[Facts]()
            is_refused = (number, k) == (2, 1)
            agents = {a: role for a, role in cast.agents.items() if role != many}
            agents |= {} if is_refused else {f"{many}_{n}": many for n in range(times)}
            for agent, role in agents.items():
                said = output(draw, cast, role, len(turns))
                paid = {f"team.{name}": float(draw.chance(0.5)) for name in cast.team}
                own_turn = turn(
                    episode, task, agent, role, int(role == many), candidate=k, group=of_task(task, agent),
                    trajectory=episode, rewards=dict(paid), paid=paid,
                    facts={"Anchor": {"state": f"{task}/{agent}"}, "Grounded": {"is_grounded": True}}, **said,
                )  # fmt: skip
                turns.append(own_turn)
            own.append(episode_of(episode, task, turns, success=draw.chance(0.5)))
        groups.append(own)
    return groups
