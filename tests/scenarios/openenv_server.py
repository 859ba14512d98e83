"""A server of OpenEnv's own package for the tests: `python openenv_server.py PORT`. It needs openenv, and no mas."""

import random
import sys

import uvicorn
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class Say(Action):
    """A word."""

    message: str


class Heard(Observation):
    """What is told."""

    told: str
    left: int


class Echo(Environment):
    """Repeat the number that was told; three tries."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._state = State()

    def reset(self, seed=None, episode_id=None, **kwargs) -> Heard:
        self.number = random.Random(seed).randrange(10_000)
        self._state = State(episode_id="one", step_count=0)
        return Heard(told=f"Say {self.number}.", left=3, done=False, reward=None)

    def step(self, action: Say, timeout_s=None, **kwargs) -> Heard:
        if action.message == "break":
            raise RuntimeError("broken on purpose")
        self._state.step_count += 1
        is_right = action.message == str(self.number)
        left = 3 - self._state.step_count
        return Heard(
            told="Right." if is_right else f"No, {self.number}.",
            left=left,
            done=is_right or not left,
            reward=float(is_right),
        )

    @property
    def state(self) -> State:
        return self._state


if __name__ == "__main__":
    app = create_app(Echo, Say, Heard, env_name="echo", max_concurrent_envs=int(sys.argv[2]))
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
