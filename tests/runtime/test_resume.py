"""Plays that go on after a kill: what is left of limits and budgets, what is asked again, and what is refused."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest
from play_lives import Life, MemoryLog, MemoryPlays, Says, Takes, World
from test_human import TWO_PEOPLE
from test_policies import PAIR
from virtual_time import play

from mas.bus.memory import MemoryBus
from mas.core.errors import AgentFailed, Halted, JournalError, RemoteError, ReplayError
from mas.core.messages import Note, Payload
from mas.core.policy import Budget, Budgets, Policy, Retries
from mas.core.role import View
from mas.core.seeds import derive_seed
from mas.graph import TeamPlan, compile_team, load_team
from mas.roles import build_roles
from mas.runtime.human import HumanDesk, HumanQuestion
from mas.runtime.placement import ProcessRole
from mas.runtime.play import DecisionPoint
from mas.runtime.replay_events import CallEvent, Committed, GaveUp, Round
from mas.runtime.team import TeamRuntime
from mas.testing.scripted import ScriptedEngine
from mas.testing.teams import ScriptedRole, plan_of, team_of

CHAIN = ("start -> a", "a -> b", "b -> done")
PANEL = ("start -> a", "start -> b", "a -> j", "b -> j", "j -> done")


def plan_with(
    edges: Sequence[str], policies: Mapping[str, Policy], budget: Budgets | None = None, stand_ins: Sequence[str] = ()
) -> TeamPlan:
    spec, roles = team_of((*edges, *(f"start -> {name}" for name in stand_ins), *(f"{n} -> done" for n in stand_ins)))
    kept = {
        "agents": {name: role for name, role in spec.agents.items() if name not in stand_ins},
        "edges": tuple(edge for edge in spec.edges if not {edge.source, edge.target} & {*stand_ins}),
        "policies": dict(policies),
        "budget": budget or Budgets(),
    }
    return compile_team(spec.model_copy(update=kept), roles)


def second(role: str, seed: int) -> float:
    return 1.0


def name(role: str, seed: int) -> str:
    return role


def name_and_number(role: str, seed: int) -> str:
    """What it is asked, and how much it said before, as a digit."""
    return f"{role}{sum(letter.isdigit() for letter in role)}"


def slow(**seconds: float) -> Takes:
    return lambda role, seed: seconds.get(role, 1.0)


def failing(role: str, *which: int) -> Says:
    """The calls of a role, counted from 0 over all lives, that fail."""
    calls: list[int] = []

    def says(speaker: str, seed: int) -> str:
        if speaker == role:
            calls.append(seed)
            if len(calls) - 1 in which:
                raise OSError(f"call {len(calls) - 1} fails")
        return speaker

    return says


def heard(life: Life) -> list[str]:
    """Who was asked, in order."""
    wanted = {derive_seed(turn, agent, visit): agent for turn in range(9) for agent in "abcjx" for visit in range(9)}
    return [wanted.get(seed, "?") for seed in life.engine.asked]


def test_a_play_that_is_over_is_shown_from_its_record_and_asks_nobody() -> None:
    plays = MemoryPlays()
    first = Life(plan_of(PANEL), plays, slow(a=3.0), name).run()
    again = Life(plan_of(PANEL), plays, slow(a=3.0), name).run()
    assert again.saw == first.saw
    assert (again.engine.asked, again.world.steps, again.seconds) == ([], 0, 0.0)
    assert len(again.turns) == 2


def test_a_role_with_a_history_is_shown_the_same_after_a_kill() -> None:
    @dataclass(slots=True)
    class Remembering(ScriptedRole):
        """Is asked by its name and all that it said."""

        def prompt(self, view: View) -> str:
            return "".join([self.name, *(call.answer.content for call in view.past)])

    spec, roles = team_of(CHAIN)
    for name, role in roles.items():
        remembering = role.spec.model_copy(update={"history": 3, "max_tokens": 9})
        roles[name] = Remembering(name, remembering, role.routes)
    plan = compile_team(spec, roles)
    whole = Life(plan, MemoryPlays(), second, name_and_number).run()
    assert [line[3] for line in whole.lines] == ["a0", "b0", "aa01", "bb01"]
    for seconds in (0.5, 1.5, 2.5, 3.5):
        plays = MemoryPlays()
        killed = Life(plan, plays, second, name_and_number).run(until_s=seconds)
        assert isinstance(killed.error, TimeoutError)
        life = Life(plan, plays, second, name_and_number).run()
        assert life.error is None
        assert life.saw == whole.saw


def test_what_was_under_way_is_asked_again_with_the_same_id_and_seed() -> None:
    plays = MemoryPlays()
    killed = Life(plan_of(PANEL), plays, slow(a=1.0, b=9.0), name).run(until_s=5.0)
    assert isinstance(killed.error, TimeoutError)
    life = Life(plan_of(PANEL), plays, second, name).run()
    assert life.error is None
    assert heard(killed) == ["a", "b"]
    assert heard(life)[0] == "b"
    assert life.ids[0] == killed.ids[1]
    assert len({*killed.ids, *life.ids}) == 6
    assert life.engine.asked[0] == killed.engine.asked[1]
    assert life.lines[0] == killed.lines[0] == (0, "a", 0, "a")


def test_in_a_turn_that_is_over_who_was_cancelled_is_not_asked_again() -> None:
    plan = plan_of(PANEL, joins={"j": "any", "done": "any"})
    plays = MemoryPlays()
    killed = Life(plan, plays, slow(b=50.0), name).run(until_s=2.5)
    assert [type(event) for event in plays.written()].count(Committed) == 1
    life = Life(plan, plays, slow(b=50.0), name).run()
    assert life.lines[:2] == [(0, "a", 0, "a"), (0, "j", 0, "j")]
    assert life.engine.asked[0] == killed.engine.asked[3]
    assert derive_seed(0, "b", 0) not in life.engine.asked


def test_the_time_limit_of_a_join_goes_on_with_what_was_left() -> None:
    """`a` speaks at 1 s, so `j` waits until 11 s. Killed at 7.5 s, the clock was noted at 7 s: 4 s are left."""
    plan = plan_of(PANEL, joins={"j": {"timeout_s": 10}, "done": "any"})
    plays = MemoryPlays()
    Life(plan, plays, slow(b=50.0), name).run(until_s=7.5)
    plays.tick(next(iter(plays.held)), 7.0)
    early = Life(plan, plays, slow(b=50.0, j=0.25), name).run(until_s=3.9)
    assert [line[1] for line in early.lines] == ["a"]
    plays.tick(next(iter(plays.held)), 10.0)
    life = Life(plan, plays, slow(b=50.0, j=0.25), name).run(until_s=1.5)
    assert [line[1] for line in life.lines] == ["a", "j"]
    expired = [(event.expired, event.at) for event in plays.written() if isinstance(event, Round) and event.expired]
    assert expired == [(("j",), pytest.approx(11.0))]


def test_a_failed_attempt_is_not_made_again_and_the_next_one_has_another_id() -> None:
    plan = plan_with(CHAIN, {"a": Policy(retries=Retries(attempts=3, wait_s=4.0, jitter=0.0))})
    plays, says = MemoryPlays(), failing("a", 0)
    killed = Life(plan, plays, second, says).run(until_s=3.0)
    assert [attempt.number for attempt in killed.attempts] == [1]
    life = Life(plan, plays, second, says).run()
    assert life.error is None
    assert [(attempt.number, attempt.cause is None) for attempt in life.attempts] == [(1, False), (2, True)]
    assert life.ids[0] == killed.ids[0].removesuffix("/1") + "/2"
    assert heard(life) == ["a", "b", "a", "b"]
    again = Life(plan, plays, second, says).run()
    assert (again.saw, again.seconds) == (life.saw, 0.0), "waits between recorded attempts take no time"


def test_what_was_spent_stays_spent() -> None:
    """A prompt of one character and an answer of one with its end are three tokens."""
    budget = Budgets(episode=Budget(tokens=400, seconds=60.0), run=Budget(calls=50))
    plan = plan_with(CHAIN, {"a": Policy(retries=Retries(attempts=2, wait_s=0.0))}, budget)
    whole, plays, says = MemoryPlays(), MemoryPlays(), failing("a", 0)
    lefts = []

    class Watched(Life):
        async def decide(self, point: DecisionPoint) -> Payload:
            payload = await super().decide(point)
            lefts.append((point.turn, point.agent, self.runtime.remaining("e")))
            return payload

    Watched(plan, whole, second, failing("a", 0)).run()
    wanted, lefts = lefts, []
    Watched(plan, plays, second, says).run(until_s=4.5)
    lefts.clear()
    Watched(plan, plays, second, says).run()
    spent = [(turn, agent, left["run"].calls, left["episode"].tokens) for turn, agent, left in lefts]
    assert spent == [(turn, agent, left["run"].calls, left["episode"].tokens) for turn, agent, left in wanted]
    seconds = [left["episode"].seconds or 0.0 for *_, left in (wanted[-1], lefts[-1])]
    assert seconds[0] == pytest.approx(seconds[1], abs=1.01), "the seconds before the kill count"


def test_an_agent_that_ended_the_play_is_asked_again_by_whoever_goes_on() -> None:
    plan, plays, says = plan_of(CHAIN), MemoryPlays(), failing("b", 0)
    failed = Life(plan, plays, second, says).run()
    assert isinstance(failed.error, AgentFailed)
    assert [type(event) for event in plays.written()][-1] is GaveUp
    assert "call 0 fails" in (next(iter(plays.held.values())).failure or "")
    life = Life(plan, plays, second, says).run()
    assert life.error is None
    assert heard(life) == ["b", "a", "b"]
    assert life.ids[0] == failed.ids[-1].removesuffix("/1") + "/2", "its id is another one: that one has failed"
    assert Life(plan, plays, second, says).run().saw == life.saw


def test_what_was_isolated_stays_a_failure() -> None:
    plan, plays = plan_with(PANEL, {"a": Policy(on_failure="isolate")}), MemoryPlays()
    killed = Life(plan, plays, slow(b=9.0), failing("a", 0)).run(until_s=5.0)
    assert isinstance(killed.error, TimeoutError)
    life = Life(plan, plays, second, name).run()
    assert heard(life)[0] == "b"
    assert life.turns[0][1]["a"].kind == "failure"


def test_what_was_undone_is_not_undone_again_and_the_play_is_over() -> None:
    policies = {"a": Policy(compensation="x"), "b": Policy(compensation="x"), "j": Policy(on_failure="compensate")}
    plan, plays, says = plan_with(PANEL, policies, stand_ins=("x",)), MemoryPlays(), failing("j", 0)
    killed = Life(plan, plays, slow(x=10.0, b=2.0), says).run(until_s=15.0)
    assert [(a.agent, a.purpose) for a in killed.attempts if a.purpose == "compensation"] == [("b", "compensation")]
    life = Life(plan, plays, second, says).run()
    assert isinstance(life.error, AgentFailed)
    assert "Compensated: ['b', 'a']" in str(life.error)
    assert len(life.engine.asked) == 1, "only the compensation of `a` was still to be done"
    again = Life(plan, plays, second, says).run()
    assert (str(again.error), again.engine.asked) == (str(life.error), [])
    assert all(row.ended for row in plays.held.values())


def test_a_play_that_was_drained_goes_on() -> None:
    plan, plays = plan_of(CHAIN), MemoryPlays()

    class Stops(Life):
        async def decide(self, point: DecisionPoint) -> Payload:
            asyncio.get_running_loop().create_task(self.runtime.drain())
            return await super().decide(point)

    stopped = Stops(plan, plays, second, name).run()
    assert isinstance(stopped.error, Halted)
    assert len(stopped.turns) == 1
    life = Life(plan, plays, second, name).run()
    assert life.error is None
    assert heard(life) == ["a", "b"]
    assert len(life.turns) == 2


def test_the_log_lists_what_can_go_on_and_forgets_what_it_is_told_to() -> None:
    plays = MemoryPlays()
    Life(plan_of(CHAIN), plays, second, name).run(until_s=2.5, number=3)

    async def look() -> None:
        log = MemoryLog(plays)
        (unfinished,) = await log.unfinished()
        assert (unfinished.team, unfinished.episode, unfinished.lives) == ("t", "e", 1)
        assert unfinished.settings == {"number": 3, "in_step": False}

    play(look())
    Life(plan_of(CHAIN), plays, second, name).run(number=3)

    async def look_again() -> None:
        log = MemoryLog(plays)
        assert await log.unfinished() == []
        assert [(known.is_over, known.lives) for known in await log.plays()] == [(True, 2)]

    play(look_again())


OTHERS = [
    (lambda life: Life(plan_of(PANEL), life.plays, second, name).run(number=3), JournalError, "another team"),
    (lambda life: Life(life.plan, life.plays, second, name).run(number=4), JournalError, "with number: 3, now it is 4"),
    (lambda life: Life(life.plan, life.plays, second, name).run(), JournalError, "with number: 3, now it is None"),
    (
        lambda life: Life(life.plan, life.plays, second, name, task="other").run(number=3),
        JournalError,
        "in another world",
    ),
]


@pytest.mark.parametrize(("go_on", "error", "text"), OTHERS, ids=["team", "setting", "no setting", "task"])
def test_another_play_than_the_one_that_was_begun_does_not_go_on(go_on, error, text) -> None:
    killed = Life(plan_of(CHAIN), MemoryPlays(), second, name).run(until_s=2.5, number=3)
    before = len(killed.plays.frames)
    life = go_on(killed)
    assert isinstance(life.error, error)
    assert text in str(life.error)
    assert life.engine.asked == []
    assert len(killed.plays.frames) == before


def test_a_world_that_shows_something_else_is_an_error() -> None:
    class Moody(World):
        def fields(self, state: object, view: str) -> Mapping[str, str]:
            return {"view": view, "mood": "bad"}

    killed = Life(plan_of(CHAIN), MemoryPlays(), second, name).run(until_s=1.5)
    life = Life(killed.plan, killed.plays, second, name)
    life.world = Moody(killed.plan)
    life.run()
    assert isinstance(life.error, ReplayError)
    assert "its agents see something else" in str(life.error)


def test_whoever_decides_must_ask_the_same() -> None:
    class Other(Life):
        async def decide(self, point: DecisionPoint) -> Payload:
            (candidate,) = await self.runtime.ask(point, (17,), episode="e")
            return candidate.payload

    killed = Life(plan_of(CHAIN), MemoryPlays(), second, name).run(until_s=1.5)
    life = Other(killed.plan, killed.plays, second, name).run()
    assert isinstance(life.error, ReplayError)
    assert "is asked something else in turn 0" in str(life.error)


def test_whoever_decides_must_not_ask_more_than_it_did() -> None:
    class Eager(Life):
        async def decide(self, point: DecisionPoint) -> Payload:
            payload = await super().decide(point)
            await self.runtime.ask(point, (17,), episode="e")
            return payload

    whole = Life(plan_of(PANEL), MemoryPlays(), second, name).run()
    life = Eager(whole.plan, whole.plays, second, name).run()
    assert isinstance(life.error, ReplayError)
    assert "what it was not asked" in str(life.error)


def test_one_episode_is_played_once_at_a_time() -> None:
    plan, plays = plan_of(CHAIN), MemoryPlays()

    async def twice() -> None:
        log = MemoryLog(plays)
        async with log.play(plan, "e", World(plan), {}, ticks=False):
            with pytest.raises(JournalError, match="is being played already"):
                async with log.play(plan, "e", World(plan), {}, ticks=False):
                    raise AssertionError("entered")
            with pytest.raises(JournalError, match="cannot be forgotten now"):
                await log.forget("t", "e")

    play(twice())


def test_an_answer_that_cannot_be_kept_ends_the_play() -> None:
    class Nameless(Note):
        """Has the kind of another class."""

    class Careless(ScriptedRole):
        def parse(self, text: str) -> Payload:
            return Nameless(text=text)

    spec, roles = team_of(CHAIN)
    plan = compile_team(spec, roles | {"a": Careless("a", roles["a"].spec, ())})
    life = Life(plan, MemoryPlays(), second, name).run()
    assert isinstance(life.error, JournalError)
    assert "cannot be kept" in str(life.error)
    assert "Nameless" in str(life.error)


class Crowd:
    """People: each answers as soon as it is asked, those without an answer never."""

    def __init__(self, plays: MemoryPlays, **answers: str) -> None:
        self.answers, self.asked = answers, dict[str, str]()
        self.desk = HumanDesk(self.on_question, log=MemoryLog(plays))

    def on_question(self, question: HumanQuestion) -> None:
        self.asked[question.agent] = question.id
        if question.agent in self.answers:
            asyncio.get_running_loop().call_soon(self.desk.answer, question.id, self.answers[question.agent])


def with_people(plays: MemoryPlays, crowd: Crowd) -> Life:
    spec = load_team(PAIR | TWO_PEOPLE)
    life = Life(compile_team(spec, build_roles(spec)), plays, second, lambda role, seed: "yes")
    life.desk = crowd.desk
    return life


def test_the_same_question_is_open_again_and_the_answered_one_is_not() -> None:
    plays = MemoryPlays()
    before = Crowd(plays, b="here")
    assert isinstance(with_people(plays, before).run(until_s=60.0).error, TimeoutError)
    after = Crowd(plays)
    life = with_people(plays, after).run(until_s=60.0)
    assert after.asked == {"a": before.asked["a"]}
    assert life.lines == [(0, "b", 0, "here")]
    both = with_people(plays, Crowd(plays, a="there", b="again")).run()
    assert both.error is None
    assert both.lines[:3] == [(0, "b", 0, "here"), (0, "a", 0, "there"), (0, "last", 0, "yes")]


def test_two_questions_are_open_again_and_both_answers_count() -> None:
    plays = MemoryPlays()
    before, between = Crowd(plays), Crowd(plays)
    with_people(plays, before).run(until_s=60.0)
    with_people(plays, between).run(until_s=60.0)
    assert between.asked == before.asked
    assert len(set(before.asked.values())) == 2
    life = with_people(plays, Crowd(plays, a="one", b="two")).run()
    assert sorted(life.lines[:2]) == [(0, "a", 0, "one"), (0, "b", 0, "two")]


def test_who_has_answered_is_not_asked_again_when_the_kill_came_before_the_output_was_recorded() -> None:
    plays = MemoryPlays()
    before = Crowd(plays, a="one")
    with_people(plays, before).run(until_s=60.0)
    (number,) = [at for at, event in enumerate(plays.written()) if isinstance(event, CallEvent)]
    after = Crowd(plays)
    life = with_people(plays.cut(number), after).run(until_s=60.0)
    assert after.asked == {"b": before.asked["b"]}
    assert life.lines == [(0, "a", 0, "one")]


async def test_two_runtimes_of_one_place_send_messages_with_ids_of_their_own() -> None:
    plan, ids, bus = plan_of(CHAIN), [], MemoryBus()
    bus.tap(lambda envelope: ids.append(envelope.id))
    place = ProcessRole(hosts=frozenset((*plan.agents, "environment")), principal="me", process="p1")
    for _ in range(2):
        engine = ScriptedEngine(lambda role, adapter, seed: role)
        async with TeamRuntime(plan, engine, bus, adapters={}, place=place) as runtime:

            async def decide(point: DecisionPoint, runtime: TeamRuntime = runtime) -> Payload:
                (candidate,) = await runtime.ask(point, (1,), episode="e")
                return candidate.payload

            await runtime.play("e", World(plan), decide, lambda *_: None)
    assert len(ids) == len(set(ids))


def test_errors_of_agents_are_recorded_by_their_names() -> None:
    plan, plays = plan_with(PANEL, {"a": Policy(on_failure="isolate")}), MemoryPlays()
    Life(plan, plays, second, failing("a", 0)).run(until_s=1.5)
    (failure,) = [event for event in plays.written() if isinstance(event, CallEvent) and event.error is not None]
    with pytest.raises(RemoteError, match="OSError: call 0 fails"):
        failure.outcome()
