"""What is said while the tiny base is made."""

import pytest

from mas.training.base import progress_in


def test_the_steps_of_a_tiny_base_are_told_with_the_time_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now, said = iter([100.0, 110.0, 130.0]), list[str]()
    monkeypatch.setattr("mas.training.base.time.monotonic", lambda: next(now))
    tell = progress_in(said.append, "relay")
    tell(50, 550, 1.5)  # 10 s for 50 steps: 500 more take 100 s
    tell(550, 550, 0.25)
    assert said == [
        "tiny base for relay: step 50/550, loss 1.500  left 0:01:40",
        "tiny base for relay: step 550/550, loss 0.250  left 0:00:00",
    ]
