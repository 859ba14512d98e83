"""Reinforcement learning with the SDK `tinker` (0.38) on a server of `mas tinker`: digits in answers are rewarded.

    mas tinker model=smollm2
    python examples/tinker/digits.py

Nothing in here is of mas: with another address and base model it runs on another server of the Tinker API.
"""

import argparse

import tinker
from tinker import types

PROMPTS = ("A number: ", "Count: ", "The year ", "It costs ")


def reward(text: str) -> float:
    """The share of digits."""
    return sum(one.isdigit() for one in text) / max(len(text), 1)


def datum(prompt: list[int], one: types.SampledSequence, advantage: float) -> types.Datum:
    """A completion as the API takes it: position i predicts token i + 1; prompts have the advantage 0."""
    tokens, before = [*prompt, *one.tokens], [0.0] * (len(prompt) - 1)
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={
            "target_tokens": tokens[1:],
            "logprobs": [*before, *(one.logprobs or [])],
            "advantages": [*before, *[advantage] * len(one.tokens)],
        },
    )


def train(
    client: tinker.ServiceClient, base: str, *, steps: int, group: int, max_tokens: int, lr: float
) -> list[float]:
    """The mean reward of every step."""
    training = client.create_lora_training_client(base_model=base, rank=8, seed=0).result()
    tokenizer = training.get_tokenizer()
    prompts = [tokenizer.encode(text) for text in PROMPTS]
    means = []
    for step in range(steps):
        sampling = training.save_weights_and_get_sampling_client().result()
        params = types.SamplingParams(max_tokens=max_tokens, seed=step)
        futures = [sampling.sample(types.ModelInput.from_ints(prompt), group, params) for prompt in prompts]
        data, rewards = [], []
        for prompt, future in zip(prompts, futures, strict=True):
            sequences = future.result().sequences
            own = [reward(tokenizer.decode(one.tokens, skip_special_tokens=True)) for one in sequences]
            mean = sum(own) / len(own)
            data += [datum(prompt, one, value - mean) for one, value in zip(sequences, own, strict=True)]
            rewards += own
        learned = training.forward_backward(data, "importance_sampling")
        stepped = training.optim_step(types.AdamParams(learning_rate=lr))
        learned.result()
        stepped.result()
        means.append(sum(rewards) / len(rewards))
        print(f"step {step + 1}: mean reward {means[-1]:.2f}")
    print("saved:", training.save_weights_for_sampler("digits").result().path)
    return means


def main() -> None:
    """Train on the first base model that the server has."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--key", default="tml-none", help="as in MAS_API_KEY of the server")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--group", type=int, default=8, help="completions of each prompt")
    parser.add_argument("--max-tokens", type=int, default=8)
    parser.add_argument("--lr", type=float, default=1e-3)
    given = parser.parse_args()
    models = (
        tinker.RestClient(base_url=given.url, api_key=given.key).get_server_capabilities().result().supported_models
    )
    base = models[0].model_name
    assert base is not None
    with tinker.ServiceClient(base_url=given.url, api_key=given.key) as client:
        train(client, base, steps=given.steps, group=given.group, max_tokens=given.max_tokens, lr=given.lr)


if __name__ == "__main__":
    main()
