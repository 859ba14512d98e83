"""Any scenario, its episodes several attempts at one task: fail, be guided, attempt it again from the same start.

Between two attempts a reflector may have a turn of its own, in which nobody else speaks; what it says is shown in the
prompts of the next attempt. Sources: Retroformer, arXiv 2308.02151; RISE, 2407.18219; Re-ReST, 2406.01495; Agent-RLVR,
2506.11425.
"""

from collections.abc import Collection, Iterator, Mapping
from copy import copy
from random import Random
from typing import Any, Literal, Self

import msgspec

from mas.algorithms.parts.sampling.attempts import AttemptOptions
from mas.core.environment import Environment, EnvironmentSpec, Guiding, Move, Observation, Step, Task, measures_of
from mas.core.errors import ConfigError, EnvironmentFault
from mas.core.naming import local_name
from mas.core.role import RoleSpec
from mas.core.scenario import Scenario, Split
from mas.core.seeds import derive_seed, digest
from mas.core.team import DONE, START, EdgeSpec, TeamSpec
from mas.scenarios.noisy_teacher import NoisyTeacher
from mas.scenarios.world import kept_text

Guide = Literal["none", "environment", "reflector", "repair"]
REFLECTOR, SOLO = "reflector", "solo"
MOST = 2000
"""Characters of an attempt, and of guidance, that are kept."""


class AttemptsState(msgspec.Struct, frozen=True):
    """Where the attempts stand beside the world.

    Attributes:
        number: of this attempt, from 0, or of the next one while the reflector speaks.
        actions: of this attempt; tried: those of the attempts before, as one text each.
        guidance: what this attempt is told. is_reflecting: the next turn is the reflector's.
        feedback: what the environment says of the attempt before, to who repairs it.
        right: of the attempts that are over, in order, whether each solved the task.
    """

    number: int = 0
    actions: tuple[str, ...] = ()
    tried: tuple[str, ...] = ()
    guidance: str = ""
    is_reflecting: bool = False
    feedback: str = ""
    right: tuple[bool, ...] = ()


class _Saved(msgspec.Struct, frozen=True):
    state: AttemptsState
    start: bytes
    world: bytes


class Attempts:
    """The world of a task, attempted until it is solved, `most` times at most.

    Args:
        world: with the one seat of the team; not shared with anybody else.
        guide: as `algorithm.sampler.attempts.guide`. stops: whether an attempt that solves the task is the last.
        readers: views of those who speak for the team; they alone see what was tried, or the guidance.
    """

    def __init__(
        self, world: Environment, most: int, guide: Guide, readers: Collection[str], *, stops: bool = True
    ) -> None:
        self.world, self.most, self.guide, self.readers = world, most, guide, frozenset(readers)
        self.stops = stops
        self.state = AttemptsState()
        self._start = b""
        inner, extra = world.spec, (REFLECTOR,) if guide in ("reflector", "repair") else ()
        turns = most * inner.max_turns + (most - 1) * (guide == "reflector")
        self.spec = EnvironmentSpec(
            name=inner.name, seats=inner.seats, views=(*inner.views, *extra), max_turns=turns, terms=inner.terms
        )

    def reset(self, task: Task) -> None:
        self.world.reset(task)
        self.state, self._start = AttemptsState(), self.world.snapshot()

    def to_move(self) -> tuple[str, ...]:
        return self.spec.seats if self.state.is_reflecting else self.world.to_move()

    def attempt(self) -> int:
        """See `mas.core.environment.Attempting`; the reflector's turn belongs to the attempt that it guides."""
        return self.state.number

    def observe(self, view: str) -> Observation:
        is_reflector = view == REFLECTOR and REFLECTOR in self.spec.views
        seen = self.world.observe(SOLO if is_reflector else view)
        fields = dict(seen.fields)
        if is_reflector or view in self.readers:
            shows_tried = is_reflector or self.guide in ("none", "environment")
            shows_guidance = not is_reflector and not self.state.is_reflecting
            fields["tried"] = "".join(f"{text}\n" for text in self.state.tried) if shows_tried else ""
            told = self.state.guidance if shows_guidance else self.state.feedback if is_reflector else ""
            fields["guidance"] = f"{told}\n" if told else ""
        is_reflectors_turn = self.state.is_reflecting or (self.guide == "repair" and self.state.number > 0)
        return Observation(fields, is_silent=is_reflectors_turn != is_reflector)

    def legal(self, seat: str) -> tuple[str, ...] | None:
        return None if self.state.is_reflecting else self.world.legal(seat)

    def step(self, actions: Mapping[str, str]) -> Step:
        if not self.state.is_reflecting:
            step = self.world.step(actions)
            said = tuple(kept_text(action, MOST) for action in actions.values())
            self.state = msgspec.structs.replace(self.state, actions=(*self.state.actions, *said))
            if not self.world.to_move():
                self._end_attempt()
            return step
        if set(actions) != set(self.spec.seats):
            raise EnvironmentFault(f"{self.spec.name}: seats {sorted(actions)} acted, to move are {self.spec.seats}")
        ((seat, text),) = actions.items()
        self.state = msgspec.structs.replace(self.state, guidance=kept_text(text, MOST), is_reflecting=False)
        return Step(rewards={seat: {}})

    def _end_attempt(self) -> None:
        """Note how it went, and begin the next one where there is any."""
        state = self.state
        is_short = all(len(action) == 1 for action in state.actions)
        tried = (*state.tried, kept_text(("" if is_short else " / ").join(state.actions), MOST))
        right = (*state.right, self.world.success())
        if state.number + 1 == self.most or (self.stops and right[-1]):
            self.state = msgspec.structs.replace(state, tried=tried, right=right)
            return
        says = self.world.guidance() if isinstance(self.world, Guiding) else ""
        self.state = AttemptsState(
            number=state.number + 1,
            tried=tried,
            guidance=says if self.guide == "environment" else "",
            feedback=says if self.guide == "repair" else "",
            is_reflecting=self.guide == "reflector",
            right=right,
        )
        self.world.restore(self._start)

    def success(self) -> bool:
        """Whether the last attempt solved the task; where the environment ends attempts, whether the first one did."""
        right = self.state.right
        return bool(right) and (right[0] if self.stops else len(right) == self.most and right[-1])

    def measures(self) -> dict[str, float]:
        """How many attempts were made, and the world's own measures. Where solved tasks are not attempted again,
        `solved_by_K`; otherwise whether attempt K was right, `right_at_K`, and what most attempts say, `vote`."""
        told = {**measures_of(self.world), "attempts": float(self.state.number + 1)}
        right, tried = self.state.right, self.state.tried
        if self.stops:
            return told | {f"solved_by_{k + 1}": float(any(right[: k + 1])) for k in range(self.most)}
        if len(right) == self.most:
            # of what was said most often, the first
            told["vote"] = float(right[max(range(len(tried)), key=lambda place: (tried.count(tried[place]), -place))])
        return told | {f"right_at_{k + 1}": float(one) for k, one in enumerate(right)}

    def clone(self) -> Self:
        twin = copy(self)
        twin.world = self.world.clone()
        return twin

    def snapshot(self) -> bytes:
        return msgspec.json.encode(_Saved(self.state, self._start, self.world.snapshot()))

    def restore(self, state: bytes) -> None:
        try:
            saved = msgspec.json.decode(state, type=_Saved)
        except msgspec.MsgspecError as error:
            raise EnvironmentFault(f"this is no snapshot of attempts at {self.spec.name}: {error}") from error
        self.world.restore(saved.world)
        self.state, self._start = saved.state, saved.start

    def state_key(self) -> str:
        return digest(self.world.state_key(), msgspec.json.encode(self.state).decode())

    def render(self) -> str:
        told = f", told {self.state.guidance!r}" if self.state.guidance else ""
        return f"attempt {self.state.number + 1} of {self.most}{told}\n{self.world.render()}"


_PASSED_ON = ("content_of", "holds_out", "size", "why_not_apart")
"""What a scenario may have beside the contract, and has of its inner one: it tells tasks, not attempts."""


class AttemptReward:
    """The inner scenario's own terms; who repairs is paid as `solo` is, who reflects has none."""

    def __init__(self, scenario: Scenario) -> None:
        self._reward = scenario.reward
        self.terms = scenario.reward.terms

    def own(self, move: Move) -> Mapping[str, float]:
        environment = move.environment
        assert isinstance(environment, Attempts)
        if environment.state.is_reflecting:
            return {}
        is_repair = move.role == REFLECTOR
        return self._reward.own(
            Move(
                agent=SOLO if is_repair else move.agent,
                role=SOLO if is_repair else move.role,
                environment=environment.world,
                output=move.output,
                before=move.before,
                after=move.after,
            )
        )


class AttemptedScenario:
    """Satisfies `mas.core.scenario.Scenario`, with the tasks of the inner one.

    Raises:
        ConfigError: it has several seats, no agent that sees all, an environment that guides nobody, or a joint team.
    """

    def __init__(self, scenario: Scenario, options: AttemptOptions) -> None:
        self.scenario, self.options, self.name = scenario, options, scenario.name
        self.reward = AttemptReward(scenario)
        self._has_reflector = options.guide in ("reflector", "repair")
        _check(scenario, options)
        # What a reflector says is one text: teams that act jointly cannot be told it.
        fit = {name: team for name, team in scenario.teams.items() if not (self._has_reflector and team.joint)}
        self.readers = frozenset(view for team in fit.values() for view in _speaking_views(team))
        self.teams = {name: self._team(team) for name, team in fit.items()}

    def __getattr__(self, name: str) -> Any:
        if name in _PASSED_ON:
            return getattr(self.scenario, name)
        raise AttributeError(name)

    def environment(self) -> Environment:
        options = self.options
        stops = options.stop == "solved"
        return Attempts(self.scenario.environment(), options.most, options.guide, self.readers, stops=stops)

    def task(self, split: Split, index: int) -> Task:
        return self.scenario.task(split, index)

    def fingerprint(self) -> str:
        kind = "repair by feedback" if self.options.guide == "repair" else self.options.guide
        return digest("attempts", self.scenario.fingerprint(), kind)

    def demonstrations(self, seed: int, *, expert: bool) -> Iterator[tuple[str, str]]:
        """The inner ones, and after each what it is in an attempt that is told something.

        Guidance is followed. Who sees what was tried is right with the noisy teacher's skill, and else says the same
        again.
        """
        skill = 1.0 if expert else float(getattr(self.scenario, "skill", 0.5))
        random = Random(derive_seed("attempts", seed))
        teacher, earlier = NoisyTeacher(random, skill), dict[str, list[str]]()
        right = self.scenario.demonstrations(derive_seed("right", seed), expert=True)
        for pair in self.scenario.demonstrations(seed, expert=expert):
            yield pair
            prompt, completion = next(right)
            known = earlier.setdefault(prompt[:1], [])
            others = [said for said in known if said != completion and len(said) == len(completion)]
            known[:] = [*known[-31:], completion]
            if others:
                yield from self._guided(prompt, completion, random.choice(others), teacher)

    def _guided(self, prompt: str, right: str, other: str, teacher: NoisyTeacher) -> Iterator[tuple[str, str]]:
        said, guide = teacher.answer(right, other, right + other), self.options.guide
        advise = getattr(self.scenario, "advise", None)
        told = f"{advise(other, right)}\n" if guide in ("environment", "repair") and advise is not None else ""
        if guide in ("none", "environment") and _begins(prompt, self._templates(self.readers)):
            yield f"{other}\n{told}{prompt}", said
        if guide == "reflector" and _begins(prompt, self._templates(self.readers)):
            hint = teacher.random.choice((right, other))
            yield f"{hint}\n{prompt}", hint
        if self._has_reflector and _begins(prompt, self._templates({SOLO})):
            yield f"?{other}\n{told}{prompt}", said

    def _templates(self, views: frozenset[str] | set[str]) -> list[str]:
        """The compact prompts of the inner agents with these views."""
        found = []
        for team in (self.scenario.teams[name] for name in self.teams):
            for agent, role in team.members().items():
                if (team.roles[role].view or local_name(agent)) in views:
                    found.append(team.roles[role].template or "")
        return found

    def _team(self, team: TeamSpec) -> TeamSpec:
        """The team, what is told in front of the prompts of those who speak for it, and the reflector."""
        members = team.members()
        readers = {members[agent] for agent in (*team.outputs, *team.joint)}
        told = "{tried}{guidance}"
        roles = {
            name: role.model_copy(update={field: told + text for field, text in _prompts(role).items()})
            if name in readers
            else role
            for name, role in team.roles.items()
        }
        if not self._has_reflector:
            return team.model_copy(update={"roles": roles})
        edges = (EdgeSpec(source=START, target=REFLECTOR), EdgeSpec(source=REFLECTOR, target=DONE))
        return team.model_copy(
            update={
                "roles": {**roles, REFLECTOR: self._reflector()},
                "agents": {**team.agents, REFLECTOR: REFLECTOR} if team.agents else {},
                "edges": (*team.edges, *edges),
                "else_output": (*team.else_output, REFLECTOR),
            }
        )

    def _reflector(self) -> RoleSpec:
        """Sees what `solo` sees, and what was tried. Where `solo` answers in a text of a certain form, what is to be
        read next is a text without it."""
        solo = self.scenario.teams[SOLO]
        role = solo.roles[solo.members()[solo.output]]
        told = role.instructions.strip()
        if self.options.guide == "repair":
            own: dict[str, Any] = {"instructions": f"{told}\n{_REPAIR}"}
        elif role.pattern is not None and not role.choices:
            told = f"Whoever attempts the task is told: {told}\n" if told else ""
            own = {"instructions": told + _ADVISE, "pattern": None, "max_tokens": _ADVICE, **_SAYS}
        else:
            own = {"instructions": f"{told}\n{_REFLECT}", **_SAYS}
        own |= {field: "?{tried}{guidance}" + text for field, text in _prompts(role).items()}
        own["instructions"] = own["instructions"].strip()
        return role.model_copy(update={"view": REFLECTOR, "adapter": None, **own})


def _prompts(role: RoleSpec) -> dict[str, str]:
    """Its whole prompts with names in braces, by field."""
    return {field: text for field, text in role.templates.items() if field != "prefill"}


_REPAIR = "An attempt at this failed; you see what was tried, and what the environment says of it. Do it better."
_REFLECT = "An attempt at this failed; you see what was tried. Say what the next attempt should do."
_ADVISE = (
    "You do not attempt it yourself. An attempt failed; you see what was tried. Say in a few sentences what the next "
    "attempt should do."
)
_ADVICE = 128
"""The most tokens of an advice in words."""
_SAYS = {"emits": "note", "type": "agent"}


def _begins(prompt: str, templates: list[str]) -> bool:
    """Whether a prompt may be made from one of the templates: it begins with the same literal character."""
    return any(template[:1] == prompt[:1] for template in templates)


def _speaking_views(team: TeamSpec) -> set[str]:
    members = team.members()
    return {team.roles[members[agent]].view or local_name(agent) for agent in (*team.outputs, *team.joint)}


def _check(scenario: Scenario, options: AttemptOptions) -> None:
    """Refuse what cannot be attempted again."""
    environment, where = scenario.environment(), f"algorithm.sampler.attempts in {scenario.name!r}"
    spec = environment.spec
    wrong = {
        f"its seats are {list(spec.seats)}, and only a team with the one seat attempts a task again": (
            len(spec.seats) != 1
        ),
        "guide=environment needs an environment that has `guidance` (mas.core.environment.Guiding), as refine has; "
        "write guide=reflector or guide=none": (
            options.guide == "environment" and not isinstance(environment, Guiding)
        ),
    }
    if options.guide in ("reflector", "repair"):
        main = scenario.teams.get("team")
        wrong |= {
            f"a reflector sees what the view `solo` shows, and it has {list(spec.views)}": SOLO not in spec.views,
            "it has no team `solo`, whose role the reflector is made from": SOLO not in scenario.teams,
            "its team acts jointly, and what a reflector says is one text: write guide=none": (
                main is not None and bool(main.joint)
            ),
        }
    for reason, is_wrong in wrong.items():
        if is_wrong:
            raise ConfigError(f"{where}: {reason}")


def attempted(scenario: Scenario, options: AttemptOptions | None) -> Scenario:
    """The scenario with so many attempts at each task; None: one, as it is.

    Raises:
        ConfigError: it cannot be attempted again in this way; says why.
    """
    return scenario if options is None else AttemptedScenario(scenario, options)
