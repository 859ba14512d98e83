"""Every payload goes through bytes and comes back the same; what is no message is refused."""

import random
from types import MappingProxyType
from typing import ClassVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from mas.bus.wire import decode, encode, read_plain
from mas.core.engine import AdapterRef, Generation
from mas.core.environment import Observation, Step
from mas.core.errors import Malformed
from mas.core.messages import Action, Delivery, Envelope, Failure, Feedback, Note, Payload, Plan, Verdict
from mas.core.role import Message, View
from mas.runtime.payloads import AgentAnswer, Ask, Candidate, ObserveReply, ObserveRequest, StepReply, StepRequest


class Place(BaseModel):
    row: int


class Visit(Payload):
    """A user's payload with a model, and one more payload, inside."""

    kind: ClassVar[str] = "wire test visit"
    place: Place
    because: Note | None = None


class Weights(Payload):
    """Bytes as they are, at the top and within."""

    kind: ClassVar[str] = "wire test weights"
    whole: bytes
    named: dict[str, bytes]


class Opaque(Payload):
    """Holds what cannot be written."""

    kind: ClassVar[str] = "wire test opaque"
    model_config = ConfigDict(arbitrary_types_allowed=True, frozen=True)
    secret: object


GENERATION = Generation(token_ids=(1, 2), logprobs=(-0.5, -1.25), finish="stop", adapter=AdapterRef("planner", 3))
CANDIDATE = Candidate(
    role="planner",
    prompt="P", prompt_ids=(7,), text="go", payload=Verdict(text="no", accept=False), generation=GENERATION,
    temperature=0.5, seed=2**62, choices=(),
)  # fmt: skip
VIEW = View(
    observation=Observation(fields=MappingProxyType({"goal": "12"})),
    messages=(Message("planner", Plan(text="north")),),
    own=(Failure(text="?", cause="no match", chosen_route="reject"),),
)
STEP = Step(rewards={"team": {"goal": 1.0}}, illegal=("team",))
PAYLOADS = [
    Note(text=""),
    Plan(text="日本 \x00"),
    Action(text="U"),
    Verdict(text="ok", accept=True),
    Feedback(text="more"),
    Failure(text="x", cause="y"),
    Ask.model_construct(view=VIEW, seeds=(1, 2), temperature=None),
    AgentAnswer.model_construct(candidates=(CANDIDATE,)),
    ObserveRequest.model_construct(episode="e", views=("a", "b")),
    ObserveReply.model_construct(observations={"a": Observation(fields={"x": "1"})}),
    StepRequest.model_construct(episode="e", actions={"team": "U"}),
    StepReply.model_construct(step=STEP),
    Visit(place=Place(row=3), because=Note(text="asked")),
    Weights(whole=bytes(range(256)), named={"a": b"", "b": b"\xff\x00"}),
]


def envelope(payload: Payload) -> Envelope:
    return Envelope(
        id="1", kind=payload.kind, source="a", target="b", payload=payload, key="k", deadline=12.5, attempt=2,
        delivery=Delivery.AT_LEAST_ONCE, visibility=frozenset({"b", "c"}), episode="e", turn=4,
    )  # fmt: skip


@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda payload: type(payload).__name__)
def test_a_message_comes_back_as_it_was(payload):
    again = decode(encode(envelope(payload)))
    assert type(again.payload) is type(payload)
    assert again.payload.__dict__ == payload.__dict__
    assert msgspec.structs.replace(again, payload=payload) == envelope(payload)
    assert read_plain(encode(envelope(payload)))["payload"]["kind"] == payload.kind


def test_what_cannot_be_written_is_refused_with_its_class():
    with pytest.raises(Malformed, match="Opaque cannot be written"):
        encode(envelope(Opaque(secret=object())))


def test_an_unknown_kind_names_those_that_are_known():
    frame = encode(envelope(Note(text="x"))).replace(b"note", b"nute")
    with pytest.raises(Malformed, match=r"no payload of kind 'nute' is known.*Did you mean 'note'"):
        decode(frame)


def test_a_kind_that_is_not_its_payloads_is_refused():
    with pytest.raises(Malformed, match="says that it holds 'plan'"):
        decode(encode(msgspec.structs.replace(envelope(Note(text="x")), kind="plan")))


@pytest.mark.parametrize(
    "fields", [{"text": 3}, {"text": "x", "more": 1}, {}, [], {"text": "x", "accept": "perhaps"}, None]
)
def test_fields_that_do_not_fit_are_refused(fields):
    plain = read_plain(encode(envelope(Verdict(text="x", accept=True))))
    plain["payload"] = {"kind": "verdict", "fields": fields}
    with pytest.raises(Malformed):
        decode(msgspec.msgpack.encode(plain))


@given(st.binary(max_size=200))
def test_random_bytes_are_no_message(frame):
    with pytest.raises(Malformed):
        decode(frame)
    with pytest.raises(Malformed):
        read_plain(frame)


def test_a_damaged_message_is_refused_or_another_valid_one():
    frame, draw = encode(envelope(PAYLOADS[7])), random.Random(0)
    for _ in range(2_000):
        damaged = bytearray(frame)
        damaged[draw.randrange(len(frame))] = draw.randrange(256)
        try:
            assert isinstance(decode(bytes(damaged)), Envelope)
        except Malformed:
            continue
