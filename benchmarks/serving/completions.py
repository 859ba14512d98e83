"""What a competitor made in a round, and the check that it made what was asked."""

from collections.abc import Sequence
from dataclasses import dataclass

from mas.core.engine import Generation, Request
from mas.core.errors import EngineError


@dataclass(frozen=True, slots=True)
class Made:
    """A round's requests with the completion of each."""

    requests: tuple[Request, ...]
    generations: tuple[Generation, ...]

    @classmethod
    def checked(cls, name: str, requests: Sequence[Request], generations: Sequence[Generation]) -> "Made":
        """The completions of a competitor.

        Raises:
            EngineError: one has more or fewer tokens than were wanted; its speed would mean nothing.
        """
        for index, (request, one) in enumerate(zip(requests, generations, strict=True)):
            wanted = request.sampling.max_tokens
            if len(one.token_ids) != wanted:
                raise EngineError(f"{name}: request {index} got {len(one.token_ids)} tokens, wanted were {wanted}")
        return cls(tuple(requests), tuple(generations))

    @property
    def tokens(self) -> int:
        """Tokens made, all of them wanted."""
        return sum(len(one.token_ids) for one in self.generations)
