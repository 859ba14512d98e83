"""How likely an agent is to say a text, without asking it: nothing travels on the bus."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from mas.core.errors import RunError
from mas.core.role import View
from mas.runtime.agents import RoleAgent, TeamMember


@dataclass(frozen=True, slots=True)
class Likelihoods:
    """Of a text after several views: the mean log-probability (temperature 1) of its tokens, in nats.

    `tokens`: what each of them cost, 0 where an equal prompt came before it: that is scored once.
    """

    logprobs: tuple[float, ...]
    tokens: tuple[int, ...]


async def likelihoods(member: TeamMember, views: Sequence[View], text: str) -> Likelihoods:
    """Score a text after every view as its agent would say it, all of them at once, by the adapter that it has now.

    Raises:
        RunError: a person plays the agent, or the text has no token. EngineError: its engine cannot score.
    """
    if not isinstance(member, RoleAgent):
        raise RunError(f"agent {member.role.name!r} is played by a person: a text has no known probability")
    engine = member.engine
    ids = engine.tokenizer.encode(text)
    if not ids:
        raise RunError(f"the text {text!r} has no token that could be scored")
    prompts = [member.prompted(view)[1] for view in views]
    different = tuple(dict.fromkeys(prompts))
    scored = await asyncio.gather(*(engine.score(prompt, ids, member.voice.adapter) for prompt in different))
    found = {prompt: fmean(logprobs) for prompt, logprobs in zip(different, scored, strict=True)}
    first = {prompt: number for number, prompt in reversed([*enumerate(prompts)])}
    return Likelihoods(
        logprobs=tuple(found[prompt] for prompt in prompts),
        tokens=tuple((first[one] == number) * (len(one) + len(ids)) for number, one in enumerate(prompts)),
    )
