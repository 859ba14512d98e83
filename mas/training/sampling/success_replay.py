"""Successes of earlier steps for groups in which every episode failed, so that there is something to compare with.

A replayed trajectory keeps the log-probabilities of its time, so that the ratio of the loss is that to the policy that
sampled it. Source: ARPO, End-to-End Policy Optimization for GUI Agents with Experience Replay, arXiv 2505.16282.
"""

from collections.abc import Sequence
from random import Random

import msgspec

from mas.core.errors import CheckpointError
from mas.core.naming import derive_seed
from mas.core.records import Episode, Turn

Trajectories = list[tuple[Turn, ...]]
"""All turns of each episode, the oldest episode first."""


class SuccessReplay:
    """Holds up to `size` successful episodes of every task, the newest."""

    def __init__(self, size: int, seed: int) -> None:
        self._size, self._seed = size, seed
        self._kept: dict[str, Trajectories] = {}
        self.injected = 0

    def mended(self, group: Sequence[Episode], step: int) -> Sequence[Episode]:
        """The episodes of one task; if all failed and a success of the task is known, one has its turns.

        Which one, and which success, are uniform draws by the seed. The episode stays what it was in every other
        respect: it failed and cost what it cost. A group with a success stays as it is, and is remembered.

        Args:
            step: how many are done.
        """
        played = [number for number, one in enumerate(group) if one.status == "done" and one.turns]
        successes = [group[number] for number in played if group[number].success]
        if successes:
            kept = self._kept.setdefault(successes[0].task, [])
            kept += [one.turns for one in successes]
            del kept[: -self._size]
            return group
        known = self._kept.get(group[0].task, []) if played else []
        if not known:
            return group
        random = Random(derive_seed("replay", self._seed, step, group[0].task))
        place, turns = random.choice(played), random.choice(known)
        self.injected += 1
        return [_with(one, turns) if number == place else one for number, one in enumerate(group)]

    def metrics(self) -> dict[str, float]:
        """`tasks` with a success in store, `stored` successes, and `injected` since the last call."""
        injected, self.injected = self.injected, 0
        stored = sum(len(kept) for kept in self._kept.values())
        return {"tasks": float(len(self._kept)), "stored": float(stored), "injected": float(injected)}

    def state(self) -> bytes:
        """Task -> its successes, as JSON. All of them: for a checkpoint, not for every step."""
        return msgspec.json.encode(self._kept)

    def restore(self, state: bytes) -> None:
        """Go on from `state()`.

        Raises:
            CheckpointError: it is none.
        """
        try:
            self._kept = msgspec.json.decode(state, type=dict[str, Trajectories])
        except msgspec.MsgspecError as error:
            raise CheckpointError(f"these are no successes to replay: {error}; train a new run elsewhere") from error


def _with(episode: Episode, turns: Sequence[Turn]) -> Episode:
    """The episode with the turns of another one of its task, under its own name."""
    old = turns[0].episode

    def named(name: str) -> str:
        return episode.id + name.removeprefix(old)

    replayed = [
        msgspec.structs.replace(
            turn,
            id=named(turn.id),
            parent=named(turn.parent) if turn.parent is not None else None,
            episode=episode.id,
            trajectory=named(turn.trajectory),
            is_replayed=True,
        )
        for turn in turns
    ]
    return msgspec.structs.replace(episode, turns=tuple(replayed))
