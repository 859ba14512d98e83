"""Simulated people: what they tell, when they change their mind, and how long they bear with others."""

from random import Random

import msgspec
import pytest

from mas.scenarios.simulated_users import (
    UNSURE,
    Change,
    Coworker,
    CoworkerAnswer,
    CoworkerProfile,
    User,
    UserProfile,
    briefing,
    consult,
    draw_user,
    mentioned,
    respond,
    value_of,
    with_fact,
)

VALUES = {"room": ("attic", "cellar"), "day": ("monday", "friday", "sunday"), "size": ("small", "large")}


def a_user(*changes: Change, patience: int = 2, answers: int = 1) -> User:
    profile = UserProfile(patience=patience, answers=answers, unsure=("size",), changes=changes)
    return User(profile=profile, goal=(("room", "attic"), ("day", "monday"), ("size", "large")))


def test_a_user_tells_nothing_that_he_was_not_asked() -> None:
    user, reply = respond(a_user(), [])
    assert (reply.facts, user.told, reply.lost) == ((), (), 0)
    user, reply = respond(user, ["day"])
    assert reply.facts == user.told == (("day", "monday"),)


def test_a_user_answers_as_many_questions_as_he_does_in_one_turn_the_first_ones() -> None:
    assert respond(a_user(), ["day", "room"])[1].facts == (("day", "monday"),)
    assert respond(a_user(answers=2), ["day", "room", "size"])[1].facts == (("day", "monday"), ("room", "attic"))


def test_a_user_who_does_not_know_says_so_once_and_minds_being_asked_again() -> None:
    user, reply = respond(a_user(), ["size"])
    assert (reply.facts, reply.lost) == ((("size", UNSURE),), 0)
    again, reply = respond(user, ["size"])
    assert (reply.facts, reply.lost, again.repeated, again.mood) == ((("size", UNSURE),), 1, 1, "annoyed")


def test_patience_ends_after_as_many_bad_turns_as_the_profile_says() -> None:
    user = a_user(patience=2)
    moods = [user.mood]
    for topic in ("room", "room", "day", "room"):
        user, _ = respond(user, [topic])
        moods.append(user.mood)
    assert moods == ["calm", "calm", "annoyed", "annoyed", "gone"]
    assert user.has_left
    assert (user.lost, user.repeated) == (2, 2)


def test_one_bad_turn_costs_one_point_however_bad() -> None:
    user, _ = respond(a_user(), ["room"])
    assert respond(user, ["room"], bad=True)[1].lost == 1
    assert respond(user, [], bad=True)[1].lost == 1


def test_a_changed_mind_is_told_before_the_answer_if_the_old_one_was_told() -> None:
    user, _ = respond(a_user(Change(1, "room", "cellar")), ["room"])
    assert user.goal == a_user().goal, "not yet"
    changed, reply = respond(user, ["day"])
    assert reply == type(reply)(facts=(("room", "cellar"),), lost=0)
    assert value_of(changed.goal, "room") == value_of(changed.told, "room") == "cellar"
    assert respond(changed, ["day"])[1].facts == (("day", "monday"),)
    assert respond(changed, ["day"])[1].lost == 0, "the question was not answered before"


def test_nobody_changes_his_mind_about_what_he_has_not_told() -> None:
    user, _ = respond(a_user(Change(1, "room", "cellar")), ["day"])
    assert respond(user, ["room"])[1].facts == (("room", "attic"),)


def test_asking_about_what_has_changed_is_no_repeated_question() -> None:
    user, _ = respond(a_user(Change(1, "room", "cellar")), ["room"])
    assert respond(user, ["room"])[1] == respond(user, [])[1]


def test_words_of_somebody_else_take_the_place_of_the_script_and_a_wrong_word_is_corrected_by_it() -> None:
    user, reply = respond(a_user(), ["room"], words=(("day", "friday"),))
    assert reply.facts == user.told == (("day", "friday"),)
    assert user.news == (("day", "monday"),)
    assert respond(user, ["room"])[1].facts == (("day", "monday"),)
    silent, reply = respond(user, ["room"], words=())
    assert (reply.facts, silent.told, silent.turns) == ((), user.told, 2)


def test_a_briefing_shows_what_is_so_when_the_user_speaks_next() -> None:
    user, _ = respond(a_user(Change(1, "room", "cellar")), ["room"])
    assert briefing(user) == {
        "goal": "room: cellar\nday: monday\nsize: you do not know",
        "news": "room is now cellar",
        "mood": "calm",
    }
    assert briefing(a_user())["news"] == "nothing"


def test_users_are_drawn_as_said_and_equal_for_equal_seeds() -> None:
    drawn = [draw_user(Random(seed), VALUES, patience=3, unsure=1, changes=1) for seed in range(400)]
    assert drawn == [draw_user(Random(seed), VALUES, patience=3, unsure=1, changes=1) for seed in range(400)]
    for user in drawn:
        assert all(value in VALUES[topic] for topic, value in user.goal)
        (hidden,) = user.profile.unsure
        for change in user.profile.changes:
            assert change.topic != hidden
            assert change.value not in (value_of(user.goal, change.topic), UNSURE)
            assert 1 <= change.turn <= len(VALUES)
    # Four standard deviations of a share of 400 draws of a coin: 0.1.
    assert sum(len(user.profile.changes) for user in drawn) / 400 == pytest.approx(0.5, abs=0.1)


def test_people_survive_a_snapshot_exactly() -> None:
    user, _ = respond(a_user(Change(1, "room", "cellar")), ["room"])
    assert msgspec.json.decode(msgspec.json.encode(user), type=User) == user
    coworker, _ = consult(Coworker(profile=CoworkerProfile(delay=2), knows=(("size", "large"),)), "size")
    assert msgspec.json.decode(msgspec.json.encode(coworker), type=Coworker) == coworker


def said(coworker: Coworker, *topics: str) -> list[tuple[CoworkerAnswer, ...]]:
    """What a coworker says in one turn after the other."""
    found = []
    for topic in topics:
        coworker, answers = consult(coworker, topic)
        found.append(answers)
    return found


LATER, TOLD = CoworkerAnswer("size", "later"), CoworkerAnswer("size", "told", "large")


@pytest.mark.parametrize(
    ("profile", "topics", "expected"),
    [
        (CoworkerProfile(), ("size", ""), [(TOLD,), ()]),
        (CoworkerProfile(delay=1), ("size", "", ""), [(LATER,), (TOLD,), ()]),
        (CoworkerProfile(delay=2), ("size", "size", "", ""), [(LATER,), (LATER,), (TOLD,), ()]),
        (CoworkerProfile(delay=1), ("size", "size", ""), [(LATER,), (TOLD,), ()]),
        (CoworkerProfile(refusals=1), ("size", "", "size"), [(CoworkerAnswer("size", "refused"),), (), (TOLD,)]),
        (CoworkerProfile(), ("day",), [(CoworkerAnswer("day", "unknown"),)]),
    ],
)
def test_a_coworker_tells_delays_and_refuses_by_profile(
    profile: CoworkerProfile, topics: tuple[str, ...], expected: list[tuple[CoworkerAnswer, ...]]
) -> None:
    assert said(Coworker(profile=profile, knows=(("size", "large"),)), *topics) == expected


def test_the_last_word_on_a_topic_is_kept() -> None:
    coworker, _ = consult(Coworker(profile=CoworkerProfile(delay=1), knows=(("size", "large"),)), "size")
    assert coworker.answer("size") == LATER
    assert consult(coworker)[0].answer("size") == TOLD
    assert coworker.answer("day") is None


def test_facts_keep_their_order_and_names_are_found_as_whole_words() -> None:
    assert with_fact((("a", "1"), ("b", "2")), "a", "3") == (("a", "3"), ("b", "2"))
    assert with_fact((("a", "1"),), "b", "2") == (("a", "1"), ("b", "2"))
    assert mentioned("Which Day, and which room? The day!", ("room", "day", "size")) == ("day", "room")
    assert mentioned("Today in the roomy attic", ("room", "day")) == ()
