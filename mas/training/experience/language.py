"""The editor that is a language model: the run's own base, or a peer. What it answers is read, never evaluated.

Source: Training-Free GRPO, arXiv 2510.08191: every rollout is summarised, the group's semantic advantage is stated as
one or two experiences, these become operations on the library, and a pass over the batch consolidates them. Questions
in our own words; a batch of one group needs no consolidation.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from mas.config.updates import ExperienceOptions
from mas.core.cost import FREE, Cost, asked
from mas.core.engine import Request, Sampling
from mas.core.errors import RefusedRequest
from mas.core.seeds import derive_seed
from mas.core.together import together
from mas.runtime.agents import ModelEndpoint
from mas.training.experience.editor import Proposal
from mas.training.experience.library import Library
from mas.training.experience.operations import Operation, Refusal
from mas.training.experience.reading import read_experiences, read_operations
from mas.training.experience.rollouts import LessonGroup
from mas.training.experience.wording import COACH, ask_consolidation, ask_experiences, ask_operations, ask_summary


@dataclass(slots=True)
class _Spent:
    """What one proposal has cost so far, and what of its answers could not be read."""

    cost: Cost = FREE
    refused: list[Refusal] = field(default_factory=list)

    def proposal(self, operations: Sequence[Operation] = ()) -> Proposal:
        """The operations with all that they cost."""
        return Proposal(tuple(operations), tuple(self.refused), self.cost)


class LanguageEditor:
    """Satisfies `mas.training.experience.editor.Editor`. A question too long for the model is a recorded refusal."""

    def __init__(self, endpoint: ModelEndpoint, options: ExperienceOptions) -> None:
        self._endpoint, self._options = endpoint, options
        self._sampling = Sampling(
            temperature=options.temperature, max_tokens=options.max_tokens, stop=endpoint.engine.stop_ids
        )

    async def propose(self, group: LessonGroup, library: Library, *, seed: int) -> Proposal:
        """Summaries, then experiences, then operations: one question per rollout and two more."""
        spent, options = _Spent(), self._options
        try:
            asked = [
                self._ask(ask_summary(group, rollout), derive_seed("summary", seed, number), spent)
                for number, rollout in enumerate(group.rollouts)
            ]
            summaries = await together(asked, "summary")
            question = ask_experiences(group, summaries, library, options.per_group, options.characters)
            answer = await self._ask(question, derive_seed("experiences", seed), spent)
            texts, refused = read_experiences(answer, options.per_group)
            spent.refused += refused
            if not texts:
                return spent.proposal()
            question = ask_operations(group.role, texts, library, options.characters)
            answer = await self._ask(question, derive_seed("operations", seed), spent)
        except RefusedRequest as error:
            spent.refused.append(Refusal(f"the group of task {group.task}", f"its editor cannot be asked: {error}"))
            return spent.proposal()
        operations, refused = read_operations(answer)
        spent.refused += refused
        return spent.proposal(operations)

    async def consolidate(self, role: str, library: Library, proposals: Sequence[Proposal], *, seed: int) -> Proposal:
        """The operations of one group as they are, those of several by one more question."""
        spent, options = _Spent(), self._options
        wanted = [proposal.operations for proposal in proposals if proposal.operations]
        if len(wanted) < 2:
            return spent.proposal([one for operations in wanted for one in operations])
        question = ask_consolidation(role, library, wanted, options.most, options.characters)
        try:
            answer = await self._ask(question, derive_seed("consolidation", seed), spent)
        except RefusedRequest as error:
            spent.refused.append(Refusal(f"operations of {len(wanted)} groups", f"no editor can be asked: {error}"))
            return spent.proposal()
        operations, refused = read_operations(answer)
        spent.refused += refused
        return spent.proposal(operations)

    async def _ask(self, question: str, seed: int, spent: _Spent) -> str:
        engine = self._endpoint.engine
        tokenizer = engine.tokenizer
        if self._endpoint.chats:
            prompt_ids = tokenizer.chat(COACH, question)
        else:
            prompt_ids = tokenizer.begin + tokenizer.encode(f"{COACH}\n\n{question}\n\nAnswer:\n")
        request = Request(prompt_ids=prompt_ids, sampling=self._sampling, seeds=(seed,), adapter=self._endpoint.adapter)
        (generation,) = await engine.generate(request)
        ids = generation.token_ids
        spent.cost += asked(len(prompt_ids), len(ids))
        return tokenizer.decode(ids[:-1] if generation.finish == "stop" else ids).strip()
