"""Names of MQTT topics."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mas.bus.mqtt_topics import back_topic, card_topic, level, share_group, shared_filter, stream_topic, to_topic

NAMES = st.text(min_size=1)


def test_topics_are_spelt_as_the_broker_knows_them() -> None:
    assert to_topic("s", "relay/planner", "coordinator") == "mas/s/to/relay%2Fplanner/coordinator"
    assert to_topic("s", "relay/planner", None) == "mas/s/to/relay%2Fplanner/+"
    assert back_topic("s", "a", "p1", "b") == "mas/s/back/a/p1/b"
    assert stream_topic("s", "a", None, "b") == "mas/s/stream/a/+/b"
    assert card_topic("s", "a", "p1") == "mas/s/card/a/p1"
    assert shared_filter("s", "t/a", "g/1") == "$share/g%2F1/mas/s/to/t%2Fa/+"


@given(NAMES, NAMES, NAMES, NAMES)
def test_no_name_can_be_a_wildcard_a_separator_or_a_topic_of_the_broker(
    space: str, principal: str, process: str, sender: str
) -> None:
    topic = back_topic(space, principal, process, sender)
    assert topic.count("/") == 5
    assert not set("+#$\0 \n") & set(topic)
    assert topic.isascii()


@given(NAMES, NAMES)
def test_two_names_are_never_one_level(name: str, other: str) -> None:
    assert (level(name) == level(other)) == (name == other)


def test_an_empty_name_is_refused() -> None:
    with pytest.raises(ValueError, match="empty name"):
        to_topic("s", "", None)


def test_a_group_is_known_to_those_who_know_the_password() -> None:
    group = share_group("t/a", "secret")
    assert group == share_group("t/a", "secret")
    assert len({group, share_group("t/b", "secret"), share_group("t/a", "guess")}) == 3
    assert "secret" not in group
    share_group("t/a", "long" * 100)
