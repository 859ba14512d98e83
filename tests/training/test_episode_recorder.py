"""What sampling costs, in columns that do not depend on how episodes are sampled."""

import pytest
from parts import runtime_of
from words import SOLO, Free, UncertainEngine, WordWorld

from mas.algorithms.parts.rewards.terms import RewardOptions
from mas.algorithms.parts.sampling.options import SamplerOptions
from mas.config.load import load_config
from mas.core.engine import AdapterRef, Generation
from mas.core.environment import Task
from mas.core.errors import ConfigError, RunError
from mas.core.messages import Action
from mas.core.records import Cost, Episode, cost_metrics, cost_of, cost_of_call, total_cost
from mas.runtime.payloads import Candidate
from mas.training.rollout import SAMPLERS
from mas.training.sampling.sampler import EpisodeRecorder


async def played(mode: str, candidates: int = 4) -> tuple[Episode, ...]:
    """One decision in all: the prompt `S>`, and a word of two letters that ends the episode."""
    engine = UncertainEngine(lambda prompt, number: "abcdefgh"[number] + ".", {})
    options = SamplerOptions.model_validate({"mode": mode, "candidates": candidates})
    async with runtime_of(SOLO, engine) as runtime:
        sampler = SAMPLERS[options.mode](runtime, Free(), options, RewardOptions())
        return await sampler.sample(Task(id="t", seed=0), WordWorld(), 0)


async def test_k_candidates_of_one_prompt_cost_what_k_parallel_episodes_do() -> None:
    tree, parallel = await played("tree"), await played("parallel")
    assert (len(tree), len(parallel)) == (1, 4)
    # Four calls; the prompt has two tokens; a word has two letters and the stop token.
    wanted = Cost(calls=4, prompt_tokens=8, shared_prompt_tokens=2, completion_tokens=12)
    assert cost_of(tree) == cost_of(parallel) == wanted
    assert [wanted.tokens(prompts) for prompts in ("per_call", "shared", "none")] == [20, 14, 12]
    # Each episode by itself has read its own prompt.
    assert total_cost(cost_of([one]) for one in parallel).shared_prompt_tokens == 8


def test_an_adapter_reads_a_prompt_for_itself_and_each_of_its_versions_does_not() -> None:
    def asked_of(adapter: AdapterRef | None) -> Candidate:
        said = Generation(token_ids=(7,), logprobs=(-1.0,), finish="length", adapter=adapter)
        return Candidate(
            role="solo", prompt="S>", prompt_ids=(5, 6), text="a", payload=Action(text="a"), generation=said,
            temperature=1.0, seed=0, choices=(),
        )  # fmt: skip

    recorder = EpisodeRecorder(id="e", task="t")
    for adapter in (None, AdapterRef("a", 0), AdapterRef("b", 0), AdapterRef("b", 1)):
        recorder.count((asked_of(adapter), asked_of(adapter)))
    cost = cost_of([recorder.failed(RunError("over"))])
    assert (cost.calls, cost.prompt_tokens, cost.shared_prompt_tokens) == (8, 16, 6)


def test_costs_add_up_column_by_column() -> None:
    assert cost_of_call(5, 3) + cost_of_call(1, 1) == Cost(
        calls=2, prompt_tokens=6, shared_prompt_tokens=6, completion_tokens=4
    )
    assert cost_metrics(cost_of_call(5, 3)) == {
        "tokens": 8, "calls": 1, "prompt_tokens": 5, "shared_prompt_tokens": 5, "completion_tokens": 3
    }  # fmt: skip


def test_a_way_to_count_a_budget_that_there_is_not_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"train\.token_budget=null is no budget"):
        load_config(["scenario=relay", "train.budget_prompts=shared"])
    config = load_config(["scenario=relay", "train.token_budget=100", "train.budget_prompts=shared"])
    assert config.train.budget_prompts == "shared"
