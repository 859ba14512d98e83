"""A world of words for tests of trees, and an engine whose words are as uncertain as a test says."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from mas.core.engine import AdapterRef, Generation, Request
from mas.core.environment import EnvironmentSpec, Move, Task
from mas.graph.load import load_team
from mas.scenarios.world import RecordEnvironment
from mas.testing.scripted import ScriptedEngine

Script = Mapping[str, Sequence[str]] | Callable[[str, int], str]
"""What was said before -> what is said to it, draw by draw."""


class Said(msgspec.Struct, frozen=True):
    words: tuple[str, ...] = ()


class WordWorld(RecordEnvironment[Said]):
    """Every team turn says a word. `.` at its end ends the episode, `!` wins it, too."""

    state_type: ClassVar[type[msgspec.Struct]] = Said

    def __init__(self, turns: int = 8) -> None:
        views = ("left", "right", "solo")
        super().__init__(EnvironmentSpec(name="words", seats=("team",), views=views, max_turns=turns, terms=("won",)))

    def initial(self, task: Task) -> Said:
        return Said()

    def fields(self, state: Said, view: str) -> Mapping[str, str]:
        return {"said": "".join(state.words)}

    def legal(self, seat: str) -> tuple[str, ...] | None:
        return None

    def act(self, state: Said, action: str) -> tuple[Said, dict[str, float], bool]:
        return Said((*state.words, action)), {"won": float(action.endswith("!"))}, True

    def is_over(self, state: Said) -> bool:
        return len(state.words) == self.spec.max_turns or "".join(state.words).endswith((".", "!"))

    def is_solved(self, state: Said) -> bool:
        return "".join(state.words).endswith("!")

    def render(self) -> str:
        return " ".join(self.state.words)


class Letters:
    """Pays everybody by how many letters the turn's action has, and `right` by its own word's first letter."""

    terms = ("letters", "begins")

    def own(self, move: Move) -> Mapping[str, float]:
        action = move.after.get("solo")
        begins = {"begins": float(move.output.content[:1] == "r")} if move.role == "right" else {}
        return {"letters": float(len(action.content)) if action else 0.0, **begins}


class Free:
    """Pays nothing but what the world does."""

    terms = ()

    def own(self, move: Move) -> Mapping[str, float]:
        return {}


SOLO = load_team(
    {
        "name": "solo",
        "roles": {"solo": {"type": "executor", "view": "solo", "template": "S{said}>", "max_tokens": 4}},
        "edges": ["start -> solo", "solo -> done"],
        "output": "solo",
    }
)
WAVE = load_team(
    {
        "name": "wave",
        "roles": {
            "left": {"template": "L{said}>", "view": "left", "max_tokens": 4},
            "right": {"template": "R{said}>", "view": "right", "max_tokens": 4},
            "solo": {
                "type": "executor",
                "view": "solo",
                "template": "S{said};{from.left}{from.right}>",
                "max_tokens": 4,
            },
        },
        "edges": ["start -> left", "start -> right", "left -> solo", "right -> solo", "solo -> done"],
        "output": "solo",
    }
)


class UncertainEngine(ScriptedEngine):
    """Says what the script says, every token of a word with the log-probability -entropy.

    `entropies`: of words; callable: by prompt and word. `later`: of all tokens but a word's first, None: the same.
    """

    def __init__(
        self,
        script: Script,
        entropies: Mapping[str, float] | Callable[[str, str], float],
        later: float | None = None,
    ) -> None:
        self._drawn: Counter[str] = Counter()
        self._script, self._entropies, self._later = script, entropies, later
        super().__init__(self._said)

    def _said(self, prompt: str, adapter: str | None, seed: int) -> str:
        self._drawn[prompt] += 1
        number = self._drawn[prompt] - 1
        if callable(self._script):
            return self._script(prompt, number)
        words = self._script[prompt]
        return words[number % len(words)]

    def _generation(self, request: Request, seed: int, ref: AdapterRef | None) -> Generation:
        whole: Generation = super()._generation(request, seed, ref)
        prompt, word = self.tokenizer.decode(request.prompt_ids), self.tokenizer.decode(whole.token_ids[:-1])
        entropy: Any = self._entropies(prompt, word) if callable(self._entropies) else self._entropies.get(word, 0.0)
        later = entropy if self._later is None else self._later
        logprobs = (-entropy, *(-later for _ in whole.token_ids[1:]))
        return msgspec.structs.replace(whole, logprobs=logprobs)
