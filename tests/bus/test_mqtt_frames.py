"""Frames survive the wire exactly, and nothing but a frame of a known kind comes out of it."""

import random
import time
from types import MappingProxyType
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mas.bus.mqtt.frames import (
    AnswerFrame,
    Cancel,
    Codec,
    Confirm,
    Failed,
    MessageState,
    PartFrame,
    Send,
    StateQuery,
    Status,
)
from mas.core import errors
from mas.core.engine import AdapterRef, Generation
from mas.core.environment import Observation, Step
from mas.core.errors import ConfigError, Malformed, MasError, NoRoute, RemoteError, error_named
from mas.core.messages import PAYLOADS, Action, Delivery, Envelope, Failure, Feedback, Note, Payload, Plan, Verdict
from mas.core.role import Message, View
from mas.runtime import agents
from mas.runtime.payloads import TEAM_PAYLOADS, Ask, Candidate, ObserveReply, ObserveRequest, StepReply, StepRequest

CODEC = Codec(TEAM_PAYLOADS)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
ints = st.integers(0, 2**63 - 1)
counts = st.integers(0, 2**53)
ids = st.lists(st.integers(0, 200_000), max_size=4).map(tuple)
floats = st.floats(allow_nan=False)
names = st.none() | texts
processes = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
plain = st.one_of(
    st.builds(Note, text=texts),
    st.builds(Plan, text=texts),
    st.builds(Action, text=texts),
    st.builds(Feedback, text=texts),
    st.builds(Verdict, text=texts, accept=st.booleans()),
    st.builds(Failure, text=texts, cause=texts, chosen_route=names),
)
observations = st.builds(Observation, st.dictionaries(texts, texts, max_size=3))
messages = st.lists(st.builds(Message, texts, plain), max_size=2).map(tuple)
views = st.builds(View, observation=observations, messages=messages, own=st.lists(plain, max_size=2).map(tuple))
generations = st.builds(
    Generation,
    token_ids=ids,
    logprobs=st.lists(floats, max_size=3).map(tuple),
    finish=texts,
    adapter=st.none() | st.builds(AdapterRef, texts, ints),
)
candidates = st.builds(
    Candidate,
    prompt=texts,
    prompt_ids=ids,
    text=texts,
    payload=plain,
    generation=generations,
    temperature=floats,
    seed=ints,
    choices=ids,
)
steps = st.builds(
    Step,
    rewards=st.dictionaries(texts, st.dictionaries(texts, floats, max_size=2), max_size=2),
    illegal=st.lists(texts, max_size=2).map(tuple),
)
payloads: st.SearchStrategy[Payload] = st.one_of(
    plain,
    st.builds(Ask, view=views, seeds=st.lists(ints, max_size=3).map(tuple), temperature=st.none() | floats),
    st.builds(agents.AgentAnswer, candidates=st.lists(candidates, max_size=3).map(tuple)),
    st.builds(ObserveRequest, episode=texts, views=st.lists(texts, max_size=2).map(tuple)),
    st.builds(ObserveReply, observations=st.dictionaries(texts, observations, max_size=2)),
    st.builds(StepRequest, episode=texts, actions=st.dictionaries(texts, texts, max_size=2)),
    st.builds(StepReply, step=steps),
)


@st.composite
def envelopes(draw: st.DrawFn) -> Envelope:
    payload = draw(payloads)
    optional = {name: draw(names) for name in ("correlation", "causation", "reply_to", "key", "principal", "run")}
    return Envelope(
        id=draw(texts),
        kind=payload.kind,
        source=draw(texts),
        target=draw(texts),
        payload=payload,
        sequence=draw(ints),
        final=draw(st.booleans()),
        delivery=draw(st.sampled_from(Delivery)),
        visibility=draw(st.none() | st.frozensets(texts, max_size=3)),
        turn=draw(st.none() | ints),
        **optional,
    )


frames = st.one_of(
    st.builds(
        Send,
        process=processes,
        ticket=texts,
        attempt=counts,
        mode=st.sampled_from(["publish", "publish_nowait", "request"]),
        remaining_s=st.none() | floats,
        eager=st.booleans(),
        is_streamed=st.booleans(),
        envelope=envelopes(),
    ),
    st.builds(AnswerFrame, process=processes, ticket=texts, envelope=envelopes()),
    st.builds(StateQuery, process=processes, tickets=st.lists(st.tuples(texts, counts), max_size=3)),
    st.builds(Cancel, process=processes, ticket=texts),
    st.builds(Confirm, process=processes, tickets=st.lists(texts, max_size=3)),
    st.builds(
        Status,
        process=processes,
        states=st.lists(
            st.builds(
                MessageState,
                ticket=texts,
                attempt=counts,
                state=st.sampled_from(["received", "queued", "delivered", "done", "dead", "returned", "unknown"]),
                tries=counts,
                delay_s=st.none() | st.floats(allow_nan=False, allow_infinity=False),
            ),
            max_size=3,
        ),
    ),
    st.builds(Failed, process=processes, ticket=texts, error=texts, text=texts),
    st.builds(PartFrame, process=processes, ticket=texts, attempt=counts, again=counts, sequence=counts, payload=plain),
)


@settings(max_examples=300, deadline=None)
@given(frames)
def test_a_frame_comes_out_as_it_went_in(frame):
    again = CODEC.decode(CODEC.encode(frame))
    assert again == frame
    if isinstance(frame, Send | AnswerFrame):
        assert type(again.envelope.payload) is type(frame.envelope.payload)
        assert repr(again.envelope.payload) == repr(frame.envelope.payload), "tuples stay tuples, floats stay floats"


def note(text: str = "x", payload: Payload | None = None) -> Send:
    payload = payload or Note(text=text)
    envelope = Envelope(id="1", kind=payload.kind, source="a", target="b", payload=payload)
    return Send("p", "t", 1, "request", None, False, envelope)


def test_a_mapping_that_cannot_be_changed_travels_as_a_dictionary():
    frame = note(payload=StepReply(step=Step(rewards=MappingProxyType({"team": MappingProxyType({"goal": 1.0})}))))
    assert CODEC.decode(CODEC.encode(frame)).envelope.payload.step.rewards == {"team": {"goal": 1.0}}


class Stranger(Payload):
    kind: ClassVar[str] = "stranger"


class Impostor(Note):
    """A note by kind that is no Note."""

    more: int = 0


class Odd(Payload):
    kind: ClassVar[str] = "odd"
    thing: Any


@pytest.mark.parametrize("payload", [Stranger(), Impostor(text="x")])
def test_a_payload_that_was_not_named_does_not_travel(payload):
    with pytest.raises(Malformed, match=f"'1' of kind '{payload.kind}' to 'b' cannot travel.*not among the payloads"):
        CODEC.encode(note(payload=payload))


def test_a_value_that_is_no_data_does_not_travel():
    with pytest.raises(Malformed, match="object is no type that travels"):
        Codec({"odd": Odd}).encode(note(payload=Odd(thing=object())))


def test_text_that_is_no_unicode_does_not_travel():
    with pytest.raises(Malformed, match="cannot travel"):
        CODEC.encode(note("\ud800"))


def test_an_unknown_kind_is_refused_and_the_known_ones_are_named():
    encoded = Codec({**PAYLOADS, "stranger": Stranger}).encode(note(payload=Stranger()))
    with pytest.raises(Malformed, match=r"unknown kind 'stranger'; possible: \['act', 'action'"):
        CODEC.decode(encoded)


def test_a_kind_with_other_fields_is_refused():
    encoded = Codec({"note": Impostor}).encode(note(payload=Impostor(text="x")))
    with pytest.raises(Malformed, match="unknown field `more`"):
        CODEC.decode(encoded)


def test_an_envelope_that_lies_about_its_kind_is_refused():
    lying = Envelope(id="1", kind="plan", source="a", target="b", payload=Note(text="x"))
    with pytest.raises(Malformed, match="of kind 'plan' holds 'note'"):
        CODEC.decode(CODEC.encode(AnswerFrame("p", "t", lying)))


def test_another_version_is_refused():
    with pytest.raises(Malformed, match=r"begins with b'\\x02'"):
        CODEC.decode(b"\x02" + CODEC.encode(Cancel("p", "t"))[1:])


def test_what_is_too_long_is_refused_at_both_ends():
    small = Codec(max_bytes=1024)
    with pytest.raises(Malformed, match=r"1,\d\d\d bytes long, 1,024 are allowed.*max_frame_bytes"):
        small.encode(note("x" * 1000))
    with pytest.raises(Malformed, match="1,024 are allowed"):
        small.decode(CODEC.encode(note("x" * 1000)))


def test_a_codec_is_made_of_kinds_and_a_length_that_can_be():
    with pytest.raises(ConfigError, match=r"'plan' \(Note.kind is 'note'\)"):
        Codec({"plan": Note})
    with pytest.raises(ConfigError, match="max_bytes is 1000"):
        Codec(max_bytes=1000)


@pytest.mark.parametrize("error", [NoRoute, RemoteError, ConfigError, MasError])
def test_an_error_is_itself_again(error):
    again = error_named(error.__name__, "why")
    assert type(again) is error
    assert str(again) == "why"


def test_an_error_from_elsewhere_is_a_remote_error_with_its_name():
    assert error_named("Overheated", "too hot").args == ("Overheated: too hot",)
    assert type(error_named("annotations", "x")) is RemoteError
    assert type(error_named("Exception", "x")) is RemoteError
    assert not hasattr(errors, "Overheated")


PART = CODEC.encode(PartFrame("p", "t", 1, 1, 3, Note(text="x")))


@pytest.mark.parametrize("number", [-1, 2**53 + 1, 2**64 - 1])
@pytest.mark.parametrize("name", ["attempt", "again", "sequence"])
def test_a_part_with_a_number_that_none_has_is_refused(name, number):
    counted = {"attempt": 1, "again": 1, "sequence": 0} | {name: number}
    with pytest.raises(Malformed, match="not a frame"):
        CODEC.decode(CODEC.encode(PartFrame(process="p", ticket="t", payload=Note(text="x"), **counted)))


def mutated(valid: bytes, draw: random.Random) -> bytes:
    """A frame with something wrong: bytes changed, cut, repeated, or all made up."""
    changed = bytearray(valid)
    match draw.randrange(4):
        case 0:
            for _ in range(draw.randint(1, 4)):
                changed[draw.randrange(len(changed))] = draw.randrange(256)
        case 1:
            del changed[draw.randrange(len(changed)) :]
        case 2:
            begin, end = sorted(draw.choices(range(len(changed)), k=2))
            changed[begin:begin] = changed[begin:end]
        case _:
            changed = bytearray(b"\x01") + draw.randbytes(draw.randint(0, 40))
    return bytes(changed)


def test_a_hundred_thousand_malformed_frames_are_refused_and_none_does_harm():
    """Seen: 1 to 3 s. A changed frame may still be one; then it holds only what the codec makes."""
    draw = random.Random(0)
    ask = Ask(view=View(observation=Observation({"goal": "3"}), messages=(Message("a", Note(text="x")),)), seeds=(1, 2))
    valid = [CODEC.encode(note()), CODEC.encode(note(payload=ask)), CODEC.encode(StateQuery("p", [("t", 1)])), PART]
    begin = time.process_time()
    refused = 0
    for _ in range(100_000):
        try:
            frame = CODEC.decode(mutated(draw.choice(valid), draw))
        except Malformed:
            refused += 1
        else:
            assert isinstance(frame, Send | AnswerFrame | StateQuery | Cancel | Confirm | Status | Failed | PartFrame)
            assert not isinstance(frame, PartFrame) or 0 <= min(frame.attempt, frame.again, frame.sequence) <= 2**53
    assert refused > 60_000
    assert time.process_time() - begin < 60


@pytest.mark.parametrize(
    "bomb",
    [b"\x01\xdd\xff\xff\xff\xff", b"\x01\x93\xa1f\xa1p\xdd\xff\xff\xff\xff", b"\x01" + b"\x91" * 500_000],
    ids=["array", "list in a frame", "depth"],
)
def test_lengths_and_depths_that_are_not_there_cost_nothing(bomb):
    with pytest.raises(Malformed):
        CODEC.decode(bomb)
