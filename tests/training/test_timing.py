"""Teams in which time decides what is said are not trained."""

from typing import Any

import pytest

from mas.core.errors import ConfigError
from mas.core.team import TeamSpec
from mas.training.check_setup import check_untimed, check_vanishing


def team(policy: dict[str, Any], **more: Any) -> TeamSpec:
    """Two agents, one of them with a policy."""
    return TeamSpec.model_validate(
        {
            "name": "pair",
            "roles": {"writer": {"type": "executor"}, "spare": {"type": "executor"}},
            "edges": [{"source": "start", "target": "writer"}, {"source": "writer", "target": "done"}],
            "output": "writer",
            "policies": {"writer": policy},
            **more,
        }
    )


@pytest.mark.parametrize(
    ("policy", "more", "limit"),
    [
        ({"timeout_s": 5, "fallback": "spare"}, {}, r"timeout_s, and then fallback: spare"),
        ({"idle_s": 5, "fallback": "spare"}, {}, r"idle_s, and then fallback: spare"),
        (
            {"timeout_s": 5, "idle_s": 6, "on_failure": "isolate"},
            {},
            r"timeout_s, idle_s, and then on_failure: isolate",
        ),
        ({"budget": {"seconds": 9}, "on_failure": "isolate"}, {}, r"budget.seconds, and then on_failure: isolate"),
        (
            {"on_failure": "isolate"},
            {"budget": {"episode": {"seconds": 9}}},
            r"the team's budget.episode.seconds, and then on_failure: isolate",
        ),
    ],
)
def test_going_on_without_who_is_late_is_refused(policy: dict[str, Any], more: dict[str, Any], limit: str) -> None:
    with pytest.raises(ConfigError, match=rf"'pair' goes on without agent 'writer' when it is late \({limit}\): what"):
        check_untimed(team(policy, **more))


@pytest.mark.parametrize(
    ("policy", "more"),
    [
        ({"timeout_s": 5, "retries": {"attempts": 3}}, {}),  # the episode fails: nothing of it is trained on
        ({"fallback": "spare"}, {}),
        ({"on_failure": "isolate"}, {}),
        ({"fallback": "spare"}, {"budget": {"turn": {"seconds": 9}}}),  # no fallback is asked when a budget is spent
    ],
)
def test_limits_that_end_the_episode_and_failures_of_other_kinds_are_trained(
    policy: dict[str, Any], more: dict[str, Any]
) -> None:
    check_untimed(team(policy, **more))


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ({"fallback": "spare"}, r"goes on without agent 'writer' when its process is gone \(fallback: spare\)"),
        ({"on_failure": "isolate"}, r"when its process is gone \(on_failure: isolate\)"),
        ({"idle_s": 3}, r"waits for heartbeats of agent 'writer' \(idle_s\)"),
    ],
)
def test_over_a_bus_going_on_without_who_is_gone_is_refused(policy: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_vanishing(team(policy))
    check_vanishing(team({"timeout_s": 3, "retries": {"attempts": 2}}))
