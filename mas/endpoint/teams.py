"""A whole team as a model: a situation comes in as a message, one team turn is played on the bus, its action goes out.

What the members say to each other stays between them. A situation is a JSON object of observation fields; each member
is shown those of its own view. Plain text becomes fields, by the first of these rules that applies:

1. The team's `text` says which fields it becomes.
2. Members see one field, and their prompts name it: the text is that field.
3. No prompt names a field: the text is the field `task`, shown to all members.
"""

import json
import logging
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import msgspec

from mas.core.bus import Gap, Restart
from mas.core.environment import EnvironmentSpec, Step, Task
from mas.core.errors import ConfigError, Halted, JournalError, MasError, RefusedRequest, ReplayError
from mas.core.messages import Payload
from mas.core.naming import did_you_mean, listed
from mas.core.records import Line
from mas.core.role import parse_template
from mas.core.scenario import Scenario
from mas.core.team import TEXT, TeamSpec
from mas.endpoint.errors import Refused
from mas.endpoint.wire_base import read_json
from mas.graph.plan import TeamPlan
from mas.runtime.flow import Flow
from mas.runtime.payloads import Piece
from mas.runtime.play import Decide, DecisionPoint, team_action, view_names
from mas.runtime.replay_events import Setting
from mas.runtime.streaming import streamed_to
from mas.runtime.team import TeamRuntime
from mas.scenarios.world import RecordEnvironment
from mas.training.sampling.chains import SingleDecision
from mas.training.sampling.sampler import EpisodeRecorder, loops_of

TEXT_FIELD = "task"
"""The observation field that a plain text is shown as."""
_NAME = 100
"""Characters of what is wrong that an error repeats."""
Views = Mapping[str, Mapping[str, str]]
"""View -> its fields."""
UNFINISHED = "unfinished"
"""The code of a failure that is none of the team's: in another process the turn may go on."""
OnMemberPart = Callable[[str, Piece | Gap | Restart], object]
"""Given an agent's name, and what comes next of its answer."""
_log = logging.getLogger(__name__)


class SituationState(msgspec.Struct, frozen=True):
    """What each view sees, and the team's action once it has moved."""

    views: dict[str, dict[str, str]]
    action: str | None = None


class Situation(RecordEnvironment[SituationState]):
    """A world of one turn that somebody described: its one seat acts, and nothing comes of it."""

    def __init__(self, seat: str, views: Views) -> None:
        spec = EnvironmentSpec(name="situation", seats=(seat,), views=tuple(views), max_turns=1, terms=())
        super().__init__(spec)
        self._views = {view: dict(fields) for view, fields in views.items()}
        self.reset(Task(id="situation", seed=0))

    def initial(self, task: Task) -> SituationState:
        return SituationState(self._views)

    def fields(self, state: SituationState, view: str) -> Mapping[str, str]:
        return state.views[view]

    def act(self, state: SituationState, action: str) -> tuple[SituationState, dict[str, float], bool]:
        return msgspec.structs.replace(state, action=action), {}, True

    def is_over(self, state: SituationState) -> bool:
        return state.action is not None

    def is_solved(self, state: SituationState) -> bool:
        return False

    def render(self) -> str:
        return json.dumps(self.state.views)


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamTurn:
    """What came of a team turn. `action`: empty: the team passed. Tokens are those of all members.

    `said`: what every member answered, in order.
    """

    action: str
    said: tuple[Line, ...]
    prompt_tokens: int
    completion_tokens: int


class TeamModel:
    """A team that answers messages; any number of turns are played at the same time.

    Args:
        runtime: entered, and left after the last turn.
        example: what each view of the team's world sees in some situation. It says which fields there are.
        reads: fields that some member's prompt cannot do without.

    Raises:
        ConfigError: the team's `text` names a field that there is not, or leaves one out.

    Attributes:
        turns_played: since it was made; loops_taken: `SOURCE-TARGET` -> how often in all of them.
    """

    def __init__(self, runtime: TeamRuntime, example: Views, reads: frozenset[str] = frozenset()) -> None:
        self.runtime = runtime
        self.name = runtime.plan.spec.name
        self._shown = {view: example[view] for view in dict.fromkeys(view_names(runtime.plan).values())}
        self.turns_played = 0
        self.loops_taken = {name: 0 for name, _ in loops_of(runtime.plan)}
        self._fields = {field for fields in example.values() for field in fields}
        self._text = runtime.plan.spec.text
        if not self._text and not reads <= {TEXT_FIELD} and len(self._fields) == 1:
            self._text = dict.fromkeys(self._fields, TEXT)
        self._takes_text = bool(self._text) or reads <= {TEXT_FIELD}
        self.example = json.dumps(_merged(self._shown), ensure_ascii=False)
        self._check_text()

    @classmethod
    def of(cls, runtime: TeamRuntime, scenario: Scenario, *, chats: bool) -> "TeamModel":
        """The model of a team that plays a scenario, with its first held-out task as the example.

        Args:
            chats: whether the members use the chat template; their compact templates are not used then.

        Raises:
            ConfigError: the team plays several seats, and a message asks for one action.
        """
        check_one_seat(runtime.plan.spec)
        environment = scenario.environment()
        environment.reset(scenario.task("eval", 0))
        views = {view: dict(environment.observe(view).fields) for view in environment.spec.views}
        return cls(runtime, views, fields_read(runtime.plan, chats=chats))

    def situation(self, message: str) -> Situation:
        """The world that a message describes.

        Raises:
            Refused: it is neither the fields of the members' views nor a text that they can read; says what is needed.
        """
        try:
            given = read_json(message)
        except ValueError:
            given = None
        seat = self.runtime.plan.spec.seat
        if self._text and not isinstance(given, dict):
            given = {field: written.replace(TEXT, message) for field, written in self._text.items()}
        if isinstance(given, dict) and (self._text or not (self._takes_text and given.keys() == {TEXT_FIELD})):
            return Situation(seat, self._views_of(given))
        text = given[TEXT_FIELD] if isinstance(given, dict) else message
        if not self._takes_text or not isinstance(text, str):
            raise self._refused("The members of this team read fields, not plain text.")
        return Situation(seat, {view: {TEXT_FIELD: text} for view in self._shown})

    def texts(self, message: str) -> set[str]:
        """All that a message shows to members.

        Raises:
            Refused: as `situation`.
        """
        return {text for fields in self.situation(message).state.views.values() for text in fields.values()}

    async def turn(
        self,
        message: str,
        seed: int,
        temperature: float | None,
        *,
        episode: str | None = None,
        settings: Mapping[str, Setting] = MappingProxyType({}),
        on_part: OnMemberPart | None = None,
        on_cost: Callable[[int, int], None] = lambda prompt, generated: None,
    ) -> TeamTurn:
        """Play one team turn, or on a runtime with a log go on with it. `temperature` 0: greedy; None: each role's own.

        Args:
            episode: its name; None: one that no other turn has.
            settings: see `TeamRuntime.play`.
            on_part: given what members say while they say it; None: they answer whole.
            on_cost: told prompt and generated tokens at the end, also of a turn that failed or was cancelled.

        Raises:
            Refused: the message is no situation, a member could not be asked, or the turn failed.
        """
        situation = self.situation(message)
        recorder = EpisodeRecorder(id=episode or f"{self.name}/{secrets.token_hex(8)}", task="situation")
        actions: list[str] = []

        def on_turn(turn: int, flow: Flow, step: Step) -> None:
            actions.append(team_action(flow))
            self.turns_played += 1
            for name, taken in zip(self.loops_taken, flow.uses, strict=True):
                self.loops_taken[name] += taken

        try:
            decide = SingleDecision(self.runtime, recorder, seed, temperature)
            await self.runtime.play(
                recorder.id,
                situation,
                _told(decide, on_part),
                on_turn,
                on_attempt=recorder.on_attempt,
                settings=settings,
            )
        except MasError as error:
            if isinstance(error.__cause__, RefusedRequest):
                raise Refused(400, f"a member of team {self.name!r} could not be asked: {error.__cause__}") from error
            _log.error("team %r could not play a turn: %s: %s", self.name, type(error).__name__, error)
            code = UNFINISHED if isinstance(error, Halted | JournalError | ReplayError) else None
            why = f"team {self.name!r} could not play this turn ({type(error).__name__})"
            raise Refused(500, why, code=code) from error
        finally:
            on_cost(recorder.prompt_tokens, recorder.completion_tokens)
        return TeamTurn(
            action=actions[0],
            said=tuple(recorder.lines),
            prompt_tokens=recorder.prompt_tokens,
            completion_tokens=recorder.completion_tokens,
        )

    def _check_text(self) -> None:
        """Find out whether a plain text makes all fields."""
        needed = {field for fields in self._shown.values() for field in fields}
        for field in self._text:
            if field not in needed:
                hint = did_you_mean(field, needed)
                raise ConfigError(f"team {self.name!r}: 'text' names {field!r}, which no member sees. {hint}")
        if self._text and (missing := sorted(needed - self._text.keys())):
            raise ConfigError(f"team {self.name!r}: 'text' leaves out {', '.join(missing)}: give them, too")

    def _views_of(self, given: Mapping[str, object]) -> dict[str, dict[str, str]]:
        """Each view's own fields out of those given for all, or given for it alone under its name."""
        shared = {name: value for name, value in given.items() if not isinstance(value, dict)}
        own: dict[str, dict[str, object]] = {name: value for name, value in given.items() if isinstance(value, dict)}
        unknown = next((view for view in own if view not in self._shown), None)
        if unknown is not None:
            unknown = unknown[:_NAME]
            raise self._refused(f"No member sees a view {unknown!r}. {did_you_mean(unknown, self._shown)}")
        for fields in (shared, *own.values()):
            self._check(fields)
        views: dict[str, dict[str, str]] = {}
        for view, names in self._shown.items():
            seen = shared | own.get(view, {})
            missing = [name for name in names if name not in seen]
            if missing:
                raise self._refused(f"The field {missing[0]!r} is missing.")
            views[view] = {name: str(seen[name]) for name in names}
        return views

    def _check(self, fields: Mapping[str, object]) -> None:
        for name, value in fields.items():
            if name not in self._fields:
                name = name[:_NAME]
                raise self._refused(f"There is no field {name!r}. {did_you_mean(name, self._fields)}")
            if not isinstance(value, str):
                shown = json.dumps(value)[:_NAME]
                raise self._refused(f"The field {name!r} is {shown}; every field is a text in quotes.")

    def _refused(self, problem: str) -> Refused:
        needed = ", ".join(sorted({name for fields in self._shown.values() for name in fields}))
        fields = "the field " + repr(TEXT_FIELD) if not self._text else listed(self._text)
        text = f", or plain text for all members as {fields}" if self._takes_text else ""
        return Refused(
            400,
            f"{problem} A message to team {self.name!r} is a JSON object of the fields {needed}{text}. "
            f"Example: {self.example}",
            param="messages",
            code="wrong_situation",
        )


def _told(decide: Decide, on_part: OnMemberPart | None) -> Decide:
    """The decision, whose parts are told while they come."""
    if on_part is None:
        return decide

    async def decide_told(point: DecisionPoint) -> Payload:
        with streamed_to(partial(on_part, point.agent)):
            return await decide(point)

    return decide_told


def check_one_seat(team: TeamSpec) -> None:
    """Refuse a team that no message could be answered for.

    Raises:
        ConfigError: it plays several seats, and a message asks for one action.
    """
    if team.seats:
        raise ConfigError(
            f"team {team.name!r} plays {', '.join(team.seats)} at once, and a message is answered for one seat: serve "
            "a team of one seat, or play games with `mas run` or `mas eval`"
        )


def fields_read(plan: TeamPlan, *, chats: bool = False) -> frozenset[str]:
    """Observation fields that the members' prompts name; compact templates are not used where the members chat."""
    texts = [named for role in plan.roles.values() for named in role.spec.templates.items()]
    return frozenset(
        field for name, text in texts if not (chats and name == "template") for field in parse_template(text).fields
    )


def _merged(views: Views) -> dict[str, object]:
    """All fields in one object; a view whose field differs from another view's keeps its own under its name."""
    merged: dict[str, object] = {}
    for view, fields in views.items():
        differing = {name: value for name, value in fields.items() if merged.get(name, value) != value}
        merged = {**fields, **merged, **({view: differing} if differing else {})}
    return merged
