"""Names on the broker."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mas.bus.mqtt.topics import level, share_group

NAMES = st.text(min_size=1)


@given(NAMES)
def test_no_name_can_be_a_wildcard_a_separator_or_a_topic_of_the_broker(name: str) -> None:
    assert not set("/+#$\0 \n") & set(level(name))
    assert level(name).isascii()
    assert level(name)


def test_a_name_is_percent_encoded() -> None:
    assert level("relay/planner") == "relay%2Fplanner"
    assert level("100%+#") == "100%25%2B%23"
    assert level("a_b.c-d~") == "a_b.c-d~"


@given(NAMES, NAMES)
def test_two_names_are_never_one_level(name: str, other: str) -> None:
    assert (level(name) == level(other)) == (name == other)


def test_an_empty_name_is_refused() -> None:
    with pytest.raises(ValueError, match="empty name"):
        level("")


def test_a_group_is_known_to_those_who_know_the_password() -> None:
    group = share_group("t/a", "secret")
    assert group == share_group("t/a", "secret")
    assert len({group, share_group("t/b", "secret"), share_group("t/a", "guess")}) == 3
    assert "secret" not in group
    assert len(share_group("t/a", "long" * 100)) == 32
