"""Any scenario, its episodes several attempts at one task: fail, be guided, attempt it again from the same start."""

from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

from mas.algorithms.parts.sampling.attempts import AttemptOptions
from mas.core.environment import Environment, Guiding, Move, Task
from mas.core.errors import ConfigError
from mas.core.naming import local_name
from mas.core.role import RoleSpec
from mas.core.scenario import Scenario, Split
from mas.core.seeds import derive_seed, digest
from mas.core.team import DONE, START, EdgeSpec, TeamSpec
from mas.scenarios.attempts.environment import REFLECTOR, SOLO, Attempts
from mas.scenarios.noisy_teacher import NoisyTeacher

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
