"""What policies do when an agent is slow, silent, broken or too expensive. Virtual time: nothing waits."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_time import play

from mas.bus.memory import MemoryBus
from mas.config.options import ScenarioOptions
from mas.core.engine import Generation, Request
from mas.core.environment import Task
from mas.core.errors import (
    AgentFailed,
    BudgetExceeded,
    Closed,
    ConfigError,
    Denied,
    EngineError,
    Expired,
    Halted,
    MasError,
    RemoteError,
)
from mas.core.messages import Beat, Envelope, Payload
from mas.core.policy import Budget, Retries
from mas.core.records import Attempt
from mas.graph.load import load_team
from mas.graph.plan import compile_team
from mas.roles import build_roles
from mas.runtime.flow import Flow
from mas.runtime.human import HumanDesk
from mas.runtime.play import DecisionPoint, look
from mas.runtime.policies import Accounts, BudgetAccount, Spent, policy_of, spend, wait_before
from mas.runtime.team import TeamRuntime
from mas.scenarios import build_scenario
from mas.scenarios.relay import RelayEnvironment
from mas.testing.scripted import ScriptedEngine

SPEAKER = {"type": "agent", "view": "solo", "template": "Q>", "max_tokens": 4}
PAIR = {
    "name": "pair",
    "roles": {"first": SPEAKER, "last": SPEAKER | {"emits": "action"}},
    "edges": ["start -> first", "first -> last", "last -> done"],
    "output": "last",
}
Behave = Callable[[str, int], Awaitable[None]]
"""(adapter of who speaks, number of its call from 0) -> after how long, or with which error, it answers."""


class Voices(ScriptedEngine):
    """Every role uses the adapter of its name; what it does first is scripted."""

    def __init__(self, behave: Behave, names: Sequence[str]) -> None:
        super().__init__(lambda prompt, adapter, seed: f"{adapter}"[:2], tuple(names))
        self.behave = behave
        self.calls: list[str] = []
        self.stopped: list[str] = []

    async def generate(self, request: Request) -> tuple[Generation, ...]:
        name = request.adapter or ""
        self.calls.append(name)
        try:
            await self.behave(name, self.calls.count(name) - 1)
        except asyncio.CancelledError:
            self.stopped.append(name)
            raise
        return await super().generate(request)


class Table:
    """A team at a table: its runtime, its voices, and what was told of its attempts."""

    def __init__(self, runtime: TeamRuntime, engine: Voices) -> None:
        self.runtime, self.engine = runtime, engine
        self.attempts: list[Attempt] = []
        self.flows: list[Flow] = []
        self.messages: list[Envelope] = []
        self.environment = relay()

    async def decide(self, point: DecisionPoint) -> Payload:
        (candidate,) = await self.runtime.ask(point, (point.turn,), episode="e")
        return candidate.payload

    async def play(self) -> None:
        await self.runtime.play(
            "e",
            self.environment,
            self.decide,
            lambda turn, flow, step: self.flows.append(flow),
            on_attempt=self.attempts.append,
        )

    def tried(self) -> list[tuple[str, int, str | None]]:
        return [(attempt.asked, attempt.number, attempt.cause) for attempt in self.attempts]


def relay() -> RelayEnvironment:
    environment = build_scenario(ScenarioOptions(name="relay")).environment()
    assert isinstance(environment, RelayEnvironment)
    environment.reset(Task(id="train-0", seed=0))
    return environment


@asynccontextmanager
async def table(
    behave: Behave, policies: Mapping[str, object], desk: HumanDesk | None = None, **team: object
) -> AsyncIterator[Table]:
    spec = load_team(PAIR | {"policies": policies} | team)
    plan = compile_team(spec, build_roles(spec))
    engine = Voices(behave, list(spec.roles))
    bus = MemoryBus(clock=asyncio.get_running_loop().time)
    messages: list[Envelope] = []
    bus.tap(messages.append)
    async with TeamRuntime(plan, engine, bus, adapters={name: name for name in spec.roles}, desk=desk) as runtime:
        sitting = Table(runtime, engine)
        sitting.messages = messages
        yield sitting
    await bus.close()


async def at_once(name: str, call: int) -> None:
    return None


def fails(who: str, times: int, error: Exception) -> Behave:
    async def behave(name: str, call: int) -> None:
        if name == who and call < times:
            raise error

    return behave


def takes(who: str, seconds: float) -> Behave:
    async def behave(name: str, call: int) -> None:
        if name == who:
            await asyncio.sleep(seconds)

    return behave


def played(behave: Behave, policies: Mapping[str, object], **team: object) -> tuple[Table, float, MasError | None]:
    """One play, how long it took, and how it failed."""

    async def whole() -> tuple[Table, float, MasError | None]:
        async with table(behave, policies, **team) as sitting:
            try:
                await sitting.play()
            except MasError as error:
                return sitting, asyncio.get_running_loop().time(), error
            return sitting, asyncio.get_running_loop().time(), None

    return play(whole())


RETRIES = {"attempts": 3, "wait_s": 2.0, "factor": 3.0, "jitter": 0.0}


def test_an_error_that_may_pass_is_tried_again_and_every_try_is_in_the_record() -> None:
    sitting, seconds, error = played(fails("first", 2, KeyError("x")), {"first": {"retries": RETRIES}})
    assert error is None
    assert [(who, number) for who, number, _ in sitting.tried()] == [("first", 1), ("first", 2), ("first", 3)]
    assert [cause is None for _, _, cause in sitting.tried()] == [False, False, True]
    assert sitting.attempts[0].cause is not None
    assert sitting.attempts[0].cause.startswith("RemoteError: ")
    assert seconds == pytest.approx(2.0 + 6.0)


def test_after_the_last_attempt_the_turn_fails_with_agent_and_cause() -> None:
    sitting, _, error = played(fails("first", 9, KeyError("x")), {"first": {"retries": RETRIES}})
    assert isinstance(error, AgentFailed)
    assert isinstance(error.__cause__, RemoteError)
    assert "agent 'first' failed in turn 0: RemoteError: " in str(error)
    assert sitting.engine.calls == ["first"] * 3


@pytest.mark.parametrize("error", [Denied("no"), ConfigError("no"), EngineError("no")])
def test_an_error_that_will_not_pass_is_not_tried_again(error: MasError) -> None:
    sitting, _, failed = played(fails("first", 9, error), {"first": {"retries": RETRIES}})
    assert failed is not None
    assert failed.__cause__ is error
    assert sitting.engine.calls == ["first"]


@pytest.mark.parametrize("error", [Expired("late"), Closed("gone"), RemoteError("broken")])
def test_errors_that_may_pass(error: MasError) -> None:
    assert played(fails("first", 1, error), {"first": {"retries": RETRIES}})[2] is None


@given(st.integers(2, 6), st.floats(0, 10), st.floats(1, 4), st.floats(0, 1), st.integers(0, 99))
def test_jitter_is_seeded_and_keeps_to_its_share(
    attempt: int, wait_s: float, factor: float, jitter: float, seed: int
) -> None:
    retries = Retries(attempts=6, wait_s=wait_s, factor=factor, jitter=jitter)
    plain = wait_s * factor ** (attempt - 2)
    wait = wait_before(retries, attempt, "e", seed)
    assert wait == wait_before(retries, attempt, "e", seed)
    assert abs(wait - plain) <= jitter * plain + 1e-9


def test_jitter_differs_between_attempts_and_decisions() -> None:
    retries = Retries(attempts=9, wait_s=1.0, factor=1.0, jitter=1.0)
    waits = {wait_before(retries, attempt, "e", key) for attempt in (2, 3) for key in (0, 1)}
    assert len(waits) == 4


def test_a_whole_answer_is_waited_for_as_long_as_the_policy_says_and_then_stopped() -> None:
    sitting, seconds, error = played(takes("first", 100.0), {"first": {"timeout_s": 5.0}})
    assert error is not None
    assert isinstance(error.__cause__, Expired)
    assert seconds == pytest.approx(5.0)
    assert sitting.engine.stopped == ["first"]


def test_an_agent_that_works_longer_than_its_idle_time_is_alive() -> None:
    sitting, seconds, error = played(takes("first", 100.0), {"first": {"idle_s": 3.0}})
    assert error is None
    assert seconds >= 100.0
    beats = [message for message in sitting.messages if message.kind == "note" and message.target.startswith("run/")]
    assert len(beats) >= 100, "a stranger sees that there are beats, not what is in them"


def test_silence_expires_although_the_answer_would_come() -> None:
    async def whole() -> None:
        async with table(takes("first", 100.0), {"first": {"idle_s": 3.0}}) as sitting:
            bus, lost = sitting.runtime.bus, 0
            publish = bus.publish

            async def lossy(envelope: Envelope, *, wait: bool = True) -> None:
                nonlocal lost
                assert isinstance(envelope.payload, Beat)
                if envelope.payload.number >= 10:
                    lost += 1
                    return
                await publish(envelope, wait=wait)

            bus.publish = lossy
            with pytest.raises(AgentFailed, match="no heartbeat for 3 s"):
                await sitting.play()
            assert asyncio.get_running_loop().time() == pytest.approx(9 * 1.0 + 3.0)
            assert lost
        assert sitting.engine.stopped == ["first"]

    play(whole())


BACKUP = {"roles": {**PAIR["roles"], "backup": SPEAKER}}


def test_a_fallback_answers_for_the_agent_and_is_known_by_its_role() -> None:
    async def whole() -> None:
        async with table(fails("first", 9, KeyError("x")), {"first": {"fallback": "backup"}}, **BACKUP) as sitting:
            await sitting.play()
            assert [payload.content for payload in sitting.flows[0].own("first")] == ["ba"]
            assert [(a.agent, a.asked, a.purpose) for a in sitting.attempts] == [
                ("first", "first", "answer"),
                ("first", "backup", "fallback"),
            ]
            point = point_of(sitting)
            (candidate,) = await sitting.runtime.ask(point, (1,), episode="other")
            assert candidate.role == "backup"
            assert (await sitting.runtime.sample_locally(point, 1)).role == "backup"

    play(whole())


def point_of(sitting: Table) -> DecisionPoint:
    flow = Flow.start(sitting.runtime.plan).begin("first")
    views = look(sitting.runtime.plan, sitting.environment)
    return DecisionPoint(agent="first", flow=flow, environment=sitting.environment, observations=views, turn=0)


def test_a_fallback_that_fails_too_is_the_error_of_the_agent() -> None:
    async def behave(name: str, call: int) -> None:
        raise EngineError(f"not {name}")

    sitting, _, error = played(behave, {"first": {"fallback": "backup"}}, **BACKUP)
    assert "agent 'first' failed in turn 0: EngineError: not backup" in str(error)
    assert [attempt.cause for attempt in sitting.attempts] == ["EngineError: not first", "EngineError: not backup"]


def test_a_compensation_is_told_the_output_and_counted() -> None:
    team = {"roles": {**PAIR["roles"], "undo": SPEAKER | {"template": "{from.first}>"}}}
    policies = {"first": {"compensation": "undo"}, "last": {"on_failure": "compensate"}}
    sitting, _, error = played(fails("last", 1, EngineError("cannot")), policies, **team)
    assert "agent 'last' failed in turn 0: EngineError: cannot. Compensated: ['first']" in str(error)
    request = sitting.engine.requests[-1]
    assert sitting.engine.tokenizer.decode(request.prompt_ids) == "fi>"
    failed, attempt = sitting.attempts
    assert (failed.agent, failed.cause) == ("last", "EngineError: cannot")
    assert (attempt.purpose, attempt.agent, attempt.asked, attempt.cause) == ("compensation", "first", "undo", None)
    assert (attempt.prompt_tokens, attempt.completion_tokens) == (3, 3)


# Every call has the prompt "Q>" of 2 tokens and may have a completion of 4; "fi" or "la" and the end are 3.
MOST, ACTUAL = 6, 5


@pytest.mark.parametrize(
    ("budget", "says"),
    [
        ({"tokens": ACTUAL + MOST - 1}, "of the turn has 5 of 10 tokens left, and a call may need 6"),
        ({"calls": 1}, "of the turn has 0 of 1 calls left, and a call may need 1"),
        ({"cost": 0.0105}, "of the turn has 0.0055 of 0.0105 cost left, and a call may need 0.006"),
    ],
)
def test_a_call_that_does_not_fit_is_not_made(budget: dict[str, float], says: str) -> None:
    price = {"price": {"prompt": 1.0, "completion": 1.0}}
    roles = {name: role | price for name, role in PAIR["roles"].items()}
    sitting, _, error = played(at_once, {}, budget={"turn": budget}, roles=roles)
    assert error is not None
    assert isinstance(error.__cause__, BudgetExceeded)
    assert says in str(error)
    assert sitting.engine.calls == ["first"]


def test_what_fits_exactly_is_made_and_what_is_left_can_be_asked() -> None:
    async def whole() -> None:
        policies = {"first": {"budget": {"calls": 99}}}
        budget = {"turn": {"tokens": ACTUAL + MOST}, "run": {"tokens": 1000}}
        async with table(at_once, policies, budget=budget) as sitting:
            left: list[tuple[int | None, int | None]] = []
            decide = sitting.decide

            async def decide_and_look(point: DecisionPoint) -> Payload:
                payload = await decide(point)
                there = sitting.runtime.remaining("e", "first")
                left.append((there["turn"].tokens, there["agent"].calls))
                return payload

            sitting.decide = decide_and_look
            await sitting.play()
            turns = len(sitting.flows)
            assert left[:2] == [(MOST, 98), (MOST - ACTUAL, 98)]
            assert sitting.runtime.remaining()["run"].tokens == 1000 - 2 * ACTUAL * turns
            assert set(sitting.runtime.remaining("e")) == {"run"}, "the episode is over"

    play(whole())


def test_an_exceeded_budget_goes_the_way_of_on_failure() -> None:
    policies = {"first": {"on_failure": "isolate", "budget": {"tokens": 1}}}
    sitting, _, error = played(at_once, policies)
    assert error is None
    (output,) = sitting.flows[0].own("first")
    assert "BudgetExceeded: the budget of the agent 'first' in this episode" in getattr(output, "cause", "")


def test_seconds_stop_a_call_that_runs_when_they_are_up() -> None:
    sitting, seconds, error = played(takes("last", 100.0), {}, budget={"episode": {"seconds": 7.0}})
    assert error is not None
    assert isinstance(error.__cause__, BudgetExceeded)
    assert seconds == pytest.approx(7.0)
    assert sitting.engine.stopped == ["last"]


@given(
    limit=st.integers(1, 60),
    calls=st.lists(
        st.tuples(st.integers(0, 9), st.integers(1, 20), st.integers(0, 20), st.booleans()), min_size=1, max_size=12
    ),
)
@settings(deadline=None)
def test_concurrent_calls_never_spend_more_than_there_is(limit: int, calls: list[tuple[int, int, int, bool]]) -> None:
    """(begins at, most, actual up to most, fails) each: what was spent for certain stays within the limit."""

    async def whole() -> None:
        account = BudgetAccount(Budget(tokens=limit), "run", asyncio.get_running_loop().time)
        spent: list[int] = []

        async def one(begin: int, most: int, actual: int, is_failing: bool) -> None:
            await asyncio.sleep(begin)

            async def call() -> int:
                spent.append(min(actual, most))
                await asyncio.sleep(actual)
                if is_failing:
                    raise EngineError("broken")
                return min(actual, most)

            with suppress(EngineError, BudgetExceeded):
                await spend([account], Spent(tokens=most), call, lambda tokens: Spent(tokens=tokens))
            left = account.remaining().tokens
            assert left is not None
            assert left >= 0

        await asyncio.gather(*(one(*call) for call in calls))
        assert sum(spent) <= limit
        left = account.remaining().tokens
        assert left is not None
        assert left <= limit - sum(spent)

    play(whole())


def test_draining_finishes_the_turn_that_runs_and_begins_nothing_new() -> None:
    async def whole() -> None:
        async with table(takes("last", 10.0), {}) as sitting:
            playing = asyncio.create_task(sitting.play(), name="play")
            await asyncio.sleep(5.0)
            await sitting.runtime.drain(timeout_s=60.0)
            assert asyncio.get_running_loop().time() == pytest.approx(10.0)
            await asyncio.wait([playing])
            assert len(sitting.flows) == 1
            with pytest.raises(Halted, match="does not begin"):
                await sitting.play()
            assert sitting.engine.stopped == []

    play(whole())


def test_draining_cancels_what_is_not_over_in_time() -> None:
    async def whole() -> None:
        async with table(takes("last", 100.0), {}) as sitting:
            playing = asyncio.create_task(sitting.play(), name="play")
            await asyncio.sleep(5.0)
            await sitting.runtime.drain(timeout_s=20.0)
            assert asyncio.get_running_loop().time() == pytest.approx(25.0)
            with pytest.raises(Halted, match="episode 'e' was cancelled"):
                await playing
        assert sitting.engine.stopped == ["last"]

    play(whole())


def test_cancelling_tells_every_waiter_and_every_handler() -> None:
    async def whole() -> None:
        async with table(takes("first", 100.0), {"first": {"on_failure": "isolate", "idle_s": 5.0}}) as sitting:
            playing = asyncio.create_task(sitting.play(), name="play")
            asking = asyncio.create_task(sitting.runtime.ask(point_of(sitting), (1,), episode="x"), name="ask")
            await asyncio.sleep(5.0)
            await sitting.runtime.cancel()
            results = await asyncio.gather(playing, asking, return_exceptions=True)
            assert [type(result) for result in results] == [Halted, Halted]
            assert asyncio.get_running_loop().time() == pytest.approx(5.0)
            assert sitting.engine.stopped == ["first", "first"]
            assert not sitting.runtime.world.episodes

    play(whole())


def test_instances_of_an_agent_have_its_policy_and_one_budget_account() -> None:
    spec = load_team(PAIR | {"policies": {"first": {"timeout_s": 9.0, "budget": {"calls": 3}}}})
    assert (
        policy_of(spec.policies, "first[12]") == policy_of(spec.policies, "first") != policy_of(spec.policies, "last")
    )
    accounts = Accounts(spec, lambda: 0.0)
    accounts.begin_turn("e")
    for agent in ("first[0]", "first[1]", "first"):
        accounts.of("e", agent)[-1].take(Spent(calls=1))
    assert accounts.remaining("e", "first")["agent"].calls == 0
