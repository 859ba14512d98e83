"""Supervised fine-tuning with the SDK `tinker` (0.38) on a server of `mas tinker`, as the Tinker API is used anywhere.

    mas tinker model=smollm2
    python examples/tinker/animals.py

A model learns to answer a question about an animal by its sound alone; the last animal is not among those that it is
trained on.
"""

import argparse
import time

import tinker
from tinker import types

SOUNDS = {"dog": "Woof!", "cat": "Meow!", "cow": "Moo!", "duck": "Quack!", "sheep": "Baa!", "pig": "Oink!"}
HELD_OUT = "puppy"


def prompt(animal: str) -> str:
    """The question as SmolLM2's chat template writes it."""
    return f"<|im_start|>user\nWhat does a {animal} say?<|im_end|>\n<|im_start|>assistant\n"


def datum(before: list[int], answer: list[int]) -> types.Datum:
    """Position i predicts token i + 1; only the answer counts, each token by its share."""
    tokens = [*before, *answer]
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={
            "target_tokens": tokens[1:],
            "weights": [0.0] * (len(before) - 1) + [1.0 / len(answer)] * len(answer),
        },
    )


def main() -> None:
    """Train on the first base model that the server has."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--key", default="tml-none", help="as in MAS_API_KEY of the server")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--lr", type=float, default=1e-3)
    given = parser.parse_args()
    rest = tinker.RestClient(base_url=given.url, api_key=given.key)
    base = rest.get_server_capabilities().result().supported_models[0].model_name
    assert base is not None
    with tinker.ServiceClient(base_url=given.url, api_key=given.key) as client:
        training = client.create_lora_training_client(base_model=base, rank=16, seed=0).result()
        tokenizer = training.get_tokenizer()

        def said(name: str) -> str:
            sampling = training.save_weights_and_get_sampling_client().result()
            ids = types.ModelInput.from_ints(tokenizer.encode(prompt(name)))
            params = types.SamplingParams(max_tokens=12, temperature=0.0)
            (drawn,) = sampling.sample(ids, 1, params).result().sequences
            return str(tokenizer.decode(drawn.tokens, skip_special_tokens=True))

        data = [
            datum(tokenizer.encode(prompt(animal)), tokenizer.encode(f"{sound}<|im_end|>"))
            for animal, sound in SOUNDS.items()
        ]
        print(f"before: {said(HELD_OUT)!r}")
        began = time.perf_counter()
        for step in range(given.steps):
            learned = training.forward_backward(data, "cross_entropy")
            stepped = training.optim_step(types.AdamParams(learning_rate=given.lr))
            loss = learned.result().metrics["loss:sum"] / len(data)
            stepped.result()
            print(f"step {step + 1}: loss {loss:.3f}")
        print(f"{given.steps} steps in {time.perf_counter() - began:.1f} s")
        print(f"after: {said(HELD_OUT)!r}")
        print("saved:", training.save_state("animals").result().path)


if __name__ == "__main__":
    main()
