"""`shop`: who sees what, which answers are prices, and what it asks a model."""

import pytest

from mas.config.load import load_config
from mas.core.environment import Task
from mas.core.errors import ConfigError
from mas.core.messages import Failure, Plan
from mas.core.role import Message, View
from mas.roles import build_roles
from mas.scenarios import build_scenario
from mas.scenarios.shop import CLUES

SHOP = build_scenario(load_config(["scenario=shop", "model=smollm2"]).scenario)


def test_the_customer_sees_no_price_and_the_seller_no_clue() -> None:
    environment = SHOP.environment()
    environment.reset(SHOP.task("train", 0))
    state = environment.state
    customer, seller, solo = (environment.observe(view).fields for view in ("customer", "seller", "solo"))
    assert customer == {"clue": CLUES[state.names[state.wanted]], "names": ", ".join(state.names)}
    assert not any(price in "".join(customer.values()) for price in state.prices)
    assert list(seller) == ["prices"]
    assert solo == {"clue": customer["clue"]} | seller


@pytest.mark.parametrize(("answer", "legal", "right"), [("right", True, 1.0), ("wrong", True, 0.0), ("0", False, 0.0)])
def test_only_the_price_of_what_is_wanted_is_right(answer: str, legal: bool, right: float) -> None:
    environment = SHOP.environment()
    environment.reset(SHOP.task("train", 1))
    state = environment.state
    wrong = next(price for price in state.prices if price != environment.right_answer())
    step = environment.step({"team": {"right": environment.right_answer(), "wrong": wrong}.get(answer, answer)})
    assert step.rewards["team"]["right"] == right
    assert (step.illegal == ()) is legal
    assert environment.is_solved(environment.state) is bool(right)


def test_the_order_of_the_goods_makes_no_new_task_and_held_out_tasks_are_others() -> None:
    assert len({SHOP.content_of(Task(id="train-0", seed=seed)) for seed in range(500)}) == 500
    held = {SHOP.content_of(SHOP.task("eval", index)) for index in range(50)}
    trained = {SHOP.content_of(SHOP.task("train", index)) for index in range(500)}
    assert not held & trained


def test_the_seller_is_asked_for_the_price_of_what_the_customer_named() -> None:
    roles = build_roles(SHOP.teams["free"])
    named = roles["customer"].parse(" sheep that gives")
    assert isinstance(named, Plan)
    assert named.text == "sheep"
    environment = SHOP.environment()
    environment.reset(SHOP.task("train", 0))
    seen = View(observation=environment.observe("seller"), messages=(Message("customer", named),))
    assert roles["seller"].chat(seen)[1].endswith("What is the price of the sheep?")
    assert roles["seller"].prefill(seen) == "The price is"
    assert roles["seller"].parse(" 7.").content == "7"
    assert isinstance(roles["seller"].parse(" a lot"), Failure)


def test_without_a_pretrained_model_it_is_refused_with_one_that_works() -> None:
    with pytest.raises(ConfigError, match="such as model=smollm2"):
        next(SHOP.demonstrations(0, expert=True))
