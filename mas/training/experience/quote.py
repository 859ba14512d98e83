"""The editor that asks no model: it quotes how a role answered in an episode that did better than another one.

That is an example to imitate and no insight: it helps where situations come back, and models that learn from examples.
"""

from collections.abc import Sequence

from mas.config.updates import ExperienceOptions
from mas.training.experience.editor import Proposal
from mas.training.experience.library import Library, name_of, one_line
from mas.training.experience.operations import Operation, Refusal
from mas.training.experience.rollouts import LessonGroup, LessonRollout

ARROW = " -> "
"""Stands between what was shown and what was answered."""


class QuoteEditor:
    """Satisfies `mas.training.experience.editor.Editor`. An experience is `SHOWN -> ANSWER`."""

    def __init__(self, options: ExperienceOptions) -> None:
        self._options = options

    async def propose(self, group: LessonGroup, library: Library, *, seed: int) -> Proposal:
        """Answers of the role in the best rollout that the worst one does not have, the first `per_group` of them."""
        ranked = sorted(group.rollouts, key=lambda rollout: rollout.score)
        worse = set(_quotes(ranked[0]))
        quotes = [quote for quote in dict.fromkeys(_quotes(ranked[-1])) if quote not in worse]
        most = self._options.characters
        wanted = tuple(Operation("ADD", None, quote) for quote in quotes if len(quote) <= most)
        refused = [
            Refusal(quote[:120], f"the quotation has {len(quote)} characters, at most {most} are allowed")
            for quote in quotes
            if len(quote) > most
        ]
        return Proposal(wanted[: self._options.per_group], tuple(refused))

    async def consolidate(self, role: str, library: Library, proposals: Sequence[Proposal], *, seed: int) -> Proposal:
        """Of quotations of one situation the last one counts, in place of the library's; the oldest ones make room."""
        held = {_situation(text): number for number, text in enumerate(library.experiences)}
        wanted = {_situation(one.text): one.text for proposal in proposals for one in proposal.operations}
        updates = {
            held[key]: text for key, text in wanted.items() if key in held and text != library.experiences[held[key]]
        }
        added = [text for key, text in wanted.items() if key not in held][-self._options.most :]
        kept = {held[key] for key in wanted if key in held}
        old = [number for number in range(len(library.experiences)) if number not in kept]
        room = self._options.most - len(library.experiences) - len(added)
        gone = old[: max(-room, 0)]
        added = added[: len(added) + min(room + len(gone), 0)]
        return Proposal(
            (
                *(Operation("DELETE", name_of(number)) for number in gone),
                *(Operation("UPDATE", name_of(number), text) for number, text in updates.items()),
                *(Operation("ADD", None, text) for text in added),
            )
        )


def _quotes(rollout: LessonRollout) -> list[str]:
    own = [said for said in rollout.said if said.is_own and said.failure is None]
    return [one_line(said.shown) + ARROW + one_line(said.answer) for said in own]


def _situation(quote: str) -> str:
    return quote.rpartition(ARROW)[0]
