"""A run's held-out tasks as a task of Inspect: `inspect eval` plays and scores them as `mas eval` does.

The team plays in Inspect's own process and event loop. What opens it is a task of that loop: it opens the team when the
first sample needs it, and closes it when no sample has needed it for a while, or when the loop ends.

Needs `mas[inspect]`; nothing of Inspect is imported before the first task is made.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mas.config.load import listed_overrides
from mas.core.errors import MissingPackage
from mas.core.records import Episode
from mas.core.seeds import derive_seed

if TYPE_CHECKING:
    from mas.runs.evaluate import EvaluationRequest
    from mas.training.session import TeamSession

_IDLE_S = 5.0
"""After which a team that no sample needs is closed."""
_EPISODE = "episode"
_INDEX = "index"


def inspect_task(
    run_dir: Path | str,
    overrides: Sequence[str] = (),
    *,
    tasks: int | None = None,
    is_sampled: bool = False,
    is_trained: bool = True,
    on: str = "",
) -> Any:
    """The held-out tasks of a run's scenario, played by its team, as an `inspect_ai.Task`.

    A sample is a task; its messages are what the members read and said. The score has `success` (0 or 1) and `reward`
    (the sum of what the environment paid), and in its metadata each term of the reward and what the environment
    measures. In the first epoch the episodes are those of `mas eval`; every further one has seeds of its own.

    Args:
        run_dir: as in `mas.evaluate`, and so are the others.
        overrides: such as `train.seed=1`.
        tasks: how many; None: `train.eval_tasks`.
        is_sampled: answers are sampled as in training, not greedy.
        on: another scenario that is played instead.
        is_trained: False: the team plays as it was before training.

    Raises:
        MissingPackage: Inspect is not installed. Otherwise as `mas.evaluate`, before anything is played.
    """
    if find_spec("inspect_ai") is None:
        raise MissingPackage("this needs Inspect, which is not installed: pip install 'mas[inspect]'")
    from mas.runs.evaluate import asked_of

    asked = asked_of(Path(run_dir), listed_overrides(overrides), tasks, is_sampled=is_sampled, on=on)
    scenario = asked.setup.scenario
    return import_module("inspect_ai").Task(
        name=scenario.name,
        dataset=[_sample(asked, index) for index in range(asked.tasks)],
        solver=_solver(_TeamPlayer(asked, is_trained=is_trained)),
        scorer=_scorer(),
        model="none/none",
        metadata={
            "run": str(run_dir),
            "team": asked.setup.team.name,
            "is_trained": is_trained,
            "is_sampled": is_sampled,
            "seed": asked.setup.train.seed,
        },
    )


def _sample(asked: "EvaluationRequest", index: int) -> Any:
    """A task, as its world looks at the beginning."""
    task, environment = asked.setup.scenario.task("eval", index), asked.setup.scenario.environment()
    environment.reset(task)
    kind = import_module("inspect_ai.dataset").Sample
    return kind(id=task.id, input=environment.render(), metadata={_INDEX: index})


class _TeamPlayer:
    """Plays held-out tasks with a run's team, any number at a time."""

    def __init__(self, asked: "EvaluationRequest", *, is_trained: bool) -> None:
        self._asked, self._run = asked, asked.run_dir if is_trained else None
        self._users = 0
        self._keeper: asyncio.Task[None] | None = None
        self._opened: asyncio.Future[TeamSession]
        self._changed: asyncio.Event

    async def play(self, index: int, epoch: int) -> Episode:
        """The episode of a task. `epoch`: from 1."""
        from mas.training.sampling.chains import play_once

        asked = self._asked
        scenario, number = asked.setup.scenario, () if epoch == 1 else (epoch,)
        async with self._session() as session:
            return await play_once(
                session.runtime,
                scenario.environment(),
                scenario.task("eval", index),
                derive_seed("evaluate", asked.setup.train.seed, index, *number),
                temperature=None if asked.is_sampled else 0.0,
            )

    @asynccontextmanager
    async def _session(self) -> "AsyncIterator[TeamSession]":
        """The open team, for as long as the block lasts."""
        if self._keeper is None or self._keeper.done():
            self._opened, self._changed = asyncio.get_running_loop().create_future(), asyncio.Event()
            self._users = 0
            self._keeper = asyncio.create_task(self._keep(), name="inspect-team")
        self._users += 1
        try:
            yield await asyncio.shield(self._opened)
        finally:
            self._users -= 1
            self._changed.set()

    async def _keep(self) -> None:
        """Hold the team open. What keeps it from opening is the error of all samples that wait for it."""
        from mas.training.saved import open_run

        try:
            async with open_run(self._asked.setup, self._run, lambda note: None) as session:
                self._opened.set_result(session)
                await self._idle()
                self._keeper = None  # whoever comes now opens it again
        except Exception as error:
            if self._opened.done():
                raise
            self._opened.set_exception(error)

    async def _idle(self) -> None:
        """Wait until no sample has needed the team for a while."""
        while True:
            self._changed.clear()
            try:
                async with asyncio.timeout(None if self._users else _IDLE_S):
                    await self._changed.wait()
            except TimeoutError:
                if not self._users:
                    return


def _solver(player: _TeamPlayer) -> Any:
    """Plays a sample's task and puts the episode into its store."""
    solvers, models = import_module("inspect_ai.solver"), import_module("inspect_ai.model")

    def mas_team() -> Any:
        async def solve(state: Any, generate: Any) -> Any:
            episode = await player.play(state.metadata[_INDEX], state.epoch)
            for line in episode.lines:
                about = {"agent": line.agent, "turn": line.turn, "failure": line.failure}
                state.messages += [
                    models.ChatMessageUser(content=line.prompt, metadata=about),
                    models.ChatMessageAssistant(content=line.text, metadata=about),
                ]
            said = episode.lines[-1].text if episode.lines else ""
            state.output = models.ModelOutput.from_content(model="mas", content=said)
            state.store.set(_EPISODE, _told(episode))
            state.completed = True
            return state

        return solve

    return solvers.solver("mas_team")(mas_team)()


def _scorer() -> Any:
    """Scores an episode as the scenario did."""
    scorers = import_module("inspect_ai.scorer")

    def mas_scenario() -> Any:
        async def score(state: Any, target: Any) -> Any:
            told = state.store.get(_EPISODE)
            return scorers.Score(
                value={"success": float(told["success"]), "reward": sum(told["rewards"].values())},
                answer=state.output.completion,
                explanation=told["cause"],
                metadata=told,
            )

        return score

    metrics = {"*": [scorers.mean(), scorers.stderr()]}
    return scorers.scorer(metrics=metrics, name="mas_scenario")(mas_scenario)()


def _told(episode: Episode) -> dict[str, Any]:
    """What a log says of an episode beside its messages. `cause`: why it could not be played to its end, else None."""
    return {
        "success": episode.success,
        "rewards": dict(episode.rewards),
        "measures": dict(episode.measures),
        "turns": episode.length,
        "calls": episode.calls,
        "prompt_tokens": episode.prompt_tokens,
        "completion_tokens": episode.completion_tokens,
        "cause": episode.cause or None,
    }
