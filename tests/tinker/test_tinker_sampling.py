"""Sampling with the real SDK: what is drawn is what the engine draws with the same weights."""

import asyncio
import json
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tinker
import torch
from plain_lora import PlainLora
from tinker import types
from tinker_server_thread import RunningTinker, running_tinker

from mas.serving.adapter_weights import AdapterWeights
from mas.serving.model import BaseModel
from mas.serving.transformers_engine import TransformersEngine
from mas.tinker.sampling import Samplers, SamplingTarget

PROMPT = [40, 41, 42, 43]


def prompt(ids: list[int] | None = None) -> types.ModelInput:
    return types.ModelInput.from_ints(PROMPT if ids is None else ids)


@pytest.fixture
def sampler(server: RunningTinker, client: tinker.ServiceClient) -> tinker.SamplingClient:
    return client.create_sampling_client(base_model=server.base).result()


def learned(client: tinker.ServiceClient, base: BaseModel, token: int, steps: int = 8) -> tinker.TrainingClient:
    """A model that says `token` after the prompt."""
    training = client.create_lora_training_client(base.name, rank=4, seed=1).result()
    said = [token] * 3
    datum = types.Datum(
        model_input=prompt([*PROMPT, *said[:-1]]),
        loss_fn_inputs={"target_tokens": [*PROMPT[1:], *said], "weights": [0.0] * 3 + [1.0] * 3},  # type: ignore[dict-item]
    )
    for _ in range(steps):
        training.forward_backward([datum], "cross_entropy")
        last = training.optim_step(types.AdamParams(learning_rate=0.05))
    last.result()
    return training


def test_the_base_is_sampled_with_seeds_and_its_log_probabilities(
    sampler: tinker.SamplingClient, base: BaseModel
) -> None:
    params = types.SamplingParams(max_tokens=6, seed=5, stop=[])
    first = sampler.sample(prompt(), 3, params).result()
    again = sampler.sample(prompt(), 3, params).result()
    assert [one.tokens for one in first.sequences] == [one.tokens for one in again.sequences]
    assert len({tuple(one.tokens) for one in first.sequences}) > 1
    assert [one.tokens for one in sampler.sample(prompt(), 1, params).result().sequences] == [first.sequences[0].tokens]
    unseeded = sampler.sample(prompt(), 6, types.SamplingParams(max_tokens=6)).result()
    assert len({tuple(one.tokens) for one in unseeded.sequences}) > 1
    assert len({one.sequence_id for one in (*first.sequences, *again.sequences)}) == 6
    for one in first.sequences:
        assert (one.stop_reason, len(one.tokens)) == ("length", 6)
        ids = torch.tensor([[*PROMPT, *one.tokens]])
        with torch.no_grad():
            logprobs = base.model(input_ids=ids).logits[0, 3:-1].log_softmax(-1)
        expected = logprobs.gather(-1, torch.tensor(one.tokens)[:, None])[:, 0]
        np.testing.assert_allclose(one.logprobs_np, expected.numpy(), atol=1e-4)


def test_log_probabilities_of_a_prompt_are_the_models(sampler: tinker.SamplingClient, base: BaseModel) -> None:
    with torch.no_grad():
        all_TV = base.model(input_ids=torch.tensor([PROMPT])).logits[0].log_softmax(-1)
    expected = [float(all_TV[place, token]) for place, token in enumerate(PROMPT[1:])]
    whole = sampler.compute_logprobs(prompt()).result()
    assert whole[0] is None
    assert whole[1:] == pytest.approx(expected, abs=1e-4)
    assert sampler.compute_logprobs(prompt(), prompt_logprobs_last_n=2).result()[:2] == [None, None]
    assert sampler.compute_logprobs(prompt([40])).result() == [None]
    both = sampler.sample(
        prompt(), 1, types.SamplingParams(max_tokens=2, seed=1), True, topk_prompt_logprobs=3, topk_sample_logprobs=2
    ).result()
    assert both.prompt_logprobs == pytest.approx(whole, abs=1e-6)
    assert both.topk_prompt_logprobs is not None
    assert both.topk_prompt_logprobs[0] is None
    for place, found in enumerate(both.topk_prompt_logprobs[1:]):
        top = all_TV[place].topk(3)
        assert found is not None
        assert [token for token, _ in found] == top.indices.tolist()
        assert [value for _, value in found] == pytest.approx(top.values.tolist(), abs=1e-4)
    (one,) = both.sequences
    assert one.topk_logprobs is not None
    assert [len(found or ()) for found in one.topk_logprobs] == [2, 2]
    short = sampler.sample(prompt([40]), 1, types.SamplingParams(max_tokens=1), True, topk_prompt_logprobs=3).result()
    assert short.prompt_logprobs == short.topk_prompt_logprobs == [None]


def test_limits_of_sampling_and_stops_are_those_asked_for(sampler: tinker.SamplingClient, base: BaseModel) -> None:
    tokenizer = base.tokenizer
    greedy = sampler.sample(prompt(), 2, types.SamplingParams(max_tokens=8, temperature=0.0, stop=[])).result()
    tokens = greedy.sequences[0].tokens
    assert tokens == greedy.sequences[1].tokens
    for limits in ({"top_k": 1}, {"top_p": 1e-6}):
        drawn = sampler.sample(prompt(), 1, types.SamplingParams(max_tokens=8, seed=1, stop=[], **limits)).result()
        assert drawn.sequences[0].tokens == tokens
    cut = tokens.index(tokens[3]) + 1
    by_id = types.SamplingParams(max_tokens=8, temperature=0.0, stop=[tokens[3]])
    (stopped,) = sampler.sample(prompt(), 1, by_id).result().sequences
    assert (stopped.tokens, stopped.stop_reason) == (tokens[:cut], "stop")
    free = (
        sampler.sample(prompt(), 1, types.SamplingParams(max_tokens=40, seed=7, stop=[])).result().sequences[0].tokens
    )
    text = next(
        tokenizer.decode(free[place : place + 2])
        for place in range(len(free) - 1)
        if len(tokenizer.decode(free[place : place + 2])) == 2
    )
    (stopped,) = sampler.sample(prompt(), 1, types.SamplingParams(max_tokens=40, seed=7, stop=text)).result().sequences
    said = tokenizer.decode(stopped.tokens)
    assert stopped.stop_reason == "stop"
    assert said.endswith(text)
    assert text not in said[:-1]
    assert stopped.tokens == free[: len(stopped.tokens)]


def test_what_cannot_be_sampled_is_refused(sampler: tinker.SamplingClient) -> None:
    for ids, count, params, more, said in (
        ([], 1, {"max_tokens": 2}, {}, "prompt"),
        ([99_999], 1, {"max_tokens": 2}, {}, "vocabulary"),
        (PROMPT, 0, {"max_tokens": 2}, {}, "num_samples is 0"),
        (PROMPT, 100_000, {"max_tokens": 2}, {}, "num_samples is 100000"),
        (PROMPT, 1, {"max_tokens": 0}, {}, "max_tokens is 0"),
        (PROMPT, 1, {"max_tokens": 10**9}, {}, "context"),
        (PROMPT, 1, {"max_tokens": 2, "temperature": -1.0}, {}, "temperature -1"),
        (PROMPT, 1, {"max_tokens": 2, "top_p": 0.0}, {}, "top_p is 0"),
        (PROMPT, 1, {"max_tokens": 2, "top_k": -7}, {}, "top_k is -7"),
        (PROMPT, 1, {"max_tokens": 2, "stop": ""}, {}, "stop sequence is empty"),
        (PROMPT, 1, {"max_tokens": 2}, {"prompt_alt_tokens_k": 2}, "prompt_alt_tokens_k is not offered"),
        (PROMPT, 1, {"max_tokens": 2}, {"topk_sample_logprobs": 10**6}, "alternatives is 1000000"),
        (
            PROMPT,
            1,
            {"max_tokens": 2},
            {"include_prompt_logprobs": True, "prompt_logprobs_last_n": 9},
            "prompt_logprobs_last_n is 9",
        ),
    ):
        with pytest.raises(tinker.RequestFailedError, match=said):
            sampler.sample(prompt(ids), count, types.SamplingParams(**params), **more).result()  # type: ignore[arg-type]


def test_sampling_clients_have_the_weights_of_their_moment(
    server: RunningTinker, client: tinker.ServiceClient, base: BaseModel
) -> None:
    """Snapshots stay, also where training goes on; clients of the kind inflight follow."""
    training = learned(client, base, 50)
    before = training.save_weights_and_get_sampling_client().result()
    moving = training.save_weights_and_get_sampling_client(kind="inflight").result()
    path = training.save_weights_for_sampler("said").result().path
    greedy = types.SamplingParams(max_tokens=2, temperature=0.0)

    def says(sampling: tinker.SamplingClient) -> list[int]:
        return sampling.sample(prompt(), 1, greedy).result().sequences[0].tokens

    assert says(before) == says(moving) == [50, 50]
    other = types.Datum(
        model_input=prompt(),
        loss_fn_inputs={"target_tokens": [60] * 4, "weights": [1.0] * 4},  # type: ignore[dict-item]
    )
    for _ in range(12):
        training.forward_backward([other], "cross_entropy")
        training.optim_step(types.AdamParams(learning_rate=0.05))
    after = training.save_weights_and_get_sampling_client().result()
    training.save_weights_and_get_sampling_client(kind="inflight").result()
    named = client.create_sampling_client(model_path=path).result()
    with server.client() as another:
        foreign = another.create_sampling_client(model_path=path).result()
        assert says(foreign) == [50, 50]
    assert (says(before), says(named)) == ([50, 50], [50, 50])
    assert says(after)[0] == says(moving)[0] == 60
    copied = pickle.loads(pickle.dumps(named))
    assert says(copied) == [50, 50]
    assert named.get_base_model() == server.base
    assert named.get_tokenizer().decode([50]) == base.tokenizer.decode([50])
    own = PlainLora(base, training_weights(server, training), lr=0.0, beta1=0.9, beta2=0.9, clip=0.0)
    expected = own.logprobs(PROMPT[:-1], torch.tensor(PROMPT[1:])).detach().tolist()
    assert after.compute_logprobs(prompt()).result()[1:] == pytest.approx(expected, abs=1e-4)


def training_weights(server: RunningTinker, training: tinker.TrainingClient) -> Any:
    return server.service.training.models[training.model_id].adapter.weights


def test_weights_that_were_not_used_for_long_are_dropped_unless_they_have_a_name(
    base: BaseModel, tmp_path: Path
) -> None:
    greedy = types.SamplingParams(max_tokens=1, temperature=0.0)
    with running_tinker(base, tmp_path, samplers=2) as server, server.client() as client:
        training = client.create_lora_training_client(server.base, rank=2).result()
        named = client.create_sampling_client(training.save_weights_for_sampler("a").result().path).result()
        several = [training.save_weights_and_get_sampling_client().result() for _ in range(3)]
        for sampling in (named, several[-1]):
            assert sampling.sample(prompt(), 1, greedy).result().sequences[0].tokens
        with pytest.raises(tinker.RequestFailedError, match="were dropped, since 2 others were used after them"):
            several[0].sample(prompt(), 1, greedy).result()
        assert len(server.service.samplers._held) == 2


async def test_files_are_read_and_texts_made_in_a_thread(base: BaseModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop answers other clients meanwhile."""
    engine, seen = TransformersEngine(base), dict[str, str]()
    decode = base.tokenizer.decode

    def load() -> AdapterWeights:
        seen["file"] = threading.current_thread().name
        return base.bank.create(base.options.lora, 0)

    def text(ids: Any) -> str:
        seen["text"] = threading.current_thread().name
        return decode(ids)

    monkeypatch.setattr(base.tokenizer, "decode", text)
    samplers, target = Samplers(engine, 1), SamplingTarget(load=load)
    asked = types.SampleRequest(
        num_samples=1, prompt=prompt(), sampling_params=types.SamplingParams(max_tokens=2, stop="never said")
    )
    both = await asyncio.gather(samplers.sample(target, asked), samplers.sample(target, asked))
    assert all(both)
    assert {name.rpartition("_")[0] for name in seen.values()} == {"mas-tinker-text"}
    assert seen.keys() == {"file", "text"}
    await samplers.close()
    await engine.close()


def test_damaged_files_are_an_error_of_the_server_and_another_base_is_refused(
    server: RunningTinker, client: tinker.ServiceClient
) -> None:
    training = client.create_lora_training_client(server.base, rank=2).result()
    paths = [training.save_weights_for_sampler(name).result().path for name in ("torn", "foreign")]
    places = [
        server.service.folder.directory / training.model_id.replace(":", "_") / "sampler_weights" / name
        for name in ("torn", "foreign")
    ]
    (places[0] / "adapter_model.safetensors").write_bytes(b"torn")
    meta = json.loads((places[1] / "checkpoint.json").read_text())
    (places[1] / "checkpoint.json").write_text(json.dumps({**meta, "base": "other/base"}))
    for path, said in zip(paths, ("cannot be loaded|can be read", "was trained on 'other/base'"), strict=True):
        with pytest.raises(tinker.RequestFailedError, match=said):
            client.create_training_client_from_state(path).result()
