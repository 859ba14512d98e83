"""Training with the real SDK: what the server computes is what plain torch computes."""

import random
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import tinker
import torch
from plain_lora import Loss, PlainLora
from tinker import types
from tinker_server_thread import RunningTinker, running_tinker
from torch import Tensor

from mas.config.options import LearnerOptions, LoraOptions
from mas.serving.model import BaseModel

ADAM: Mapping[str, float] = {"lr": 0.01, "beta1": 0.8, "beta2": 0.9, "eps": 1e-3, "weight_decay": 0.05, "clip": 3.0}
TENSORS = ("logprobs", "advantages", "sequence_ratio_mask", "weights", "clip_low_threshold", "clip_high_threshold")


def params(adam: Mapping[str, float] = ADAM) -> types.AdamParams:
    return types.AdamParams(
        learning_rate=adam["lr"],
        beta1=adam["beta1"],
        beta2=adam["beta2"],
        eps=adam["eps"],
        weight_decay=adam["weight_decay"],
        grad_clip_norm=adam["clip"],
    )


def plain(base: BaseModel, rank: int, seed: int, adam: Mapping[str, float] = ADAM, **lora: Any) -> PlainLora:
    options = base.options.lora.model_copy(update={"rank": rank, **lora})
    return PlainLora(base, base.bank.create(options, seed), **adam)


Plain = tuple[list[int], Tensor, dict[str, Tensor]]


def drawn(
    base: BaseModel, names: tuple[str, ...], lengths: tuple[int, ...] = (3, 9, 5, 1), seed: int = 0
) -> list[Plain]:
    """Data of several lengths, whose numbers are such that some ratios are clipped and others are not."""
    rng, noise = random.Random(seed), torch.Generator().manual_seed(seed)
    found = []
    for length in lengths:
        tokens = [rng.randrange(base.limits.vocabulary) for _ in range(length)]
        targets = torch.tensor([rng.randrange(base.limits.vocabulary) for _ in range(length)])
        with torch.no_grad():
            known = base.model(input_ids=torch.tensor([tokens])).logits[0].log_softmax(-1).gather(-1, targets[:, None])
        everything = {
            "logprobs": known[:, 0] + 0.4 * torch.randn(length, generator=noise),
            "advantages": torch.randn(length, generator=noise),
            "sequence_ratio_mask": torch.tensor([1.0] * (length // 2 + 1) + [0.0] * (length - length // 2 - 1)),
            "weights": torch.rand(length, generator=noise),
            "clip_low_threshold": torch.full((length,), 0.9),
            "clip_high_threshold": torch.full((length,), 1.05),
        }
        found.append((tokens, targets, {name: everything[name] for name in names}))
    return found


def sent(data: list[Plain]) -> list[types.Datum]:
    return [
        types.Datum(
            model_input=types.ModelInput.from_ints(tokens),
            loss_fn_inputs={"target_tokens": targets, **inputs},  # type: ignore[dict-item]
        )
        for tokens, targets, inputs in data
    ]


def ratio(log: Tensor, x: Mapping[str, Tensor]) -> Tensor:
    return torch.exp(log - x["logprobs"])


def ppo(low: float, high: float) -> Loss:
    return lambda log, x: (
        -torch.minimum(ratio(log, x) * x["advantages"], ratio(log, x).clip(low, high) * x["advantages"]).sum()
    )


def own_bounds(log: Tensor, x: Mapping[str, Tensor]) -> Tensor:
    r = ratio(log, x)
    clipped = torch.maximum(torch.minimum(r, x["clip_high_threshold"]), x["clip_low_threshold"])
    return -torch.minimum(r * x["advantages"], clipped * x["advantages"]).sum()


def gspo(log: Tensor, x: Mapping[str, Tensor]) -> Tensor:
    chosen = x["sequence_ratio_mask"] > 0
    whole = torch.exp((log.detach() - x["logprobs"])[chosen].sum() / chosen.sum())
    s = whole * torch.exp(log) / torch.exp(log).detach()
    return -torch.minimum(s * x["advantages"], s.clip(0.95, 1.05) * x["advantages"]).sum()


RL = ("logprobs", "advantages")
LOSSES: Mapping[str, tuple[str, tuple[str, ...], dict[str, float] | None, Loss]] = {
    "cross_entropy": ("cross_entropy", ("weights",), None, lambda log, x: -(x["weights"] * log).sum()),
    "importance_sampling": (
        "importance_sampling", RL, None, lambda log, x: -(ratio(log, x) * x["advantages"]).sum(),
    ),
    "ppo": ("ppo", RL, None, ppo(0.8, 1.2)),
    "ppo with settings": ("ppo", RL, {"clip_low_threshold": 0.95, "clip_high_threshold": 1.5}, ppo(0.95, 1.5)),
    "ppo token by token": ("ppo", (*RL, "clip_low_threshold", "clip_high_threshold"), None, own_bounds),
    "cispo": (
        "cispo", RL, {"clip_low_threshold": 0.0, "clip_high_threshold": 1.1},
        lambda log, x: -(ratio(log, x).clip(0.0, 1.1).detach() * x["advantages"] * log).sum(),
    ),
    "dro": (
        "dro", RL, {"beta": 0.3},
        lambda log, x: -(x["advantages"] * log - 0.15 * (log - x["logprobs"]) ** 2).sum(),
    ),
    "gspo": ("gspo", (*RL, "sequence_ratio_mask"), {"clip_low_threshold": 0.95, "clip_high_threshold": 1.05}, gspo),
}  # fmt: skip


def adapter_of(server: RunningTinker, path: str) -> dict[str, Tensor]:
    model, kind, name = path.removeprefix("tinker://").split("/")
    place = server.service.folder.directory / model.replace(":", "_") / kind / name
    return safetensors.torch.load_file(place / "adapter_model.safetensors")


def check_equal(server: RunningTinker, training: tinker.TrainingClient, own: PlainLora, name: str = "compared") -> None:
    tensors = adapter_of(server, training.save_weights_for_sampler(name).result().path)
    assert len(tensors) == 2 * len(own.pairs)
    for layer, pair in own.pairs.items():
        for part, tensor in zip("AB", pair, strict=True):
            torch.testing.assert_close(
                tensors[f"base_model.model.{layer}.lora_{part}.weight"], tensor.detach(), atol=1e-5, rtol=0
            )


@pytest.mark.parametrize("case", LOSSES)
def test_a_loss_has_the_gradient_of_its_definition_over_several_steps(
    case: str, server: RunningTinker, client: tinker.ServiceClient, base: BaseModel
) -> None:
    """The first step's gradient adds up over two calls."""
    name, inputs, config, loss = LOSSES[case]
    own = plain(base, 5, 11)
    training = client.create_lora_training_client(server.base, rank=5, seed=11).result()
    batches = [drawn(base, inputs, seed=seed) for seed in range(3)]
    for group in (batches[:2], batches[2:]):
        futures = [(training.forward_backward(sent(one), name, config), one) for one in group]  # type: ignore[arg-type]
        step = training.optim_step(params())
        for future, batch in futures:
            theirs, total = future.result(), 0.0
            known = own.backward(batch, loss)
            for found, expected, datum in zip(theirs.loss_fn_outputs, known, batch, strict=True):
                torch.testing.assert_close(found["logprobs"].to_torch(), expected, atol=1e-5, rtol=0)
                total += float(loss(expected, datum[2]))
            assert theirs.metrics == pytest.approx({"loss:sum": total}, abs=1e-4)
        assert step.result().metrics == pytest.approx({"grad_norm": own.step()}, abs=1e-4)
    check_equal(server, training, own)


def test_several_targets_at_a_place_are_learned_dense_and_sparse(
    server: RunningTinker, client: tinker.ServiceClient, base: BaseModel
) -> None:
    """A target that stands twice at a place counts twice. The SDK sends what is mostly zeros sparse."""
    own = plain(base, 2, 3)
    training = client.create_lora_training_client(server.base, rank=2, seed=3).result()
    targets = torch.tensor([[4, 4, 9], [5, 6, 7]])
    weights = torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]])
    sparse_targets, sparse_weights = torch.zeros(4, 8, dtype=torch.long), torch.zeros(4, 8)
    sparse_targets[1, 2], sparse_weights[1, 2] = 9, 0.5
    data: list[Plain] = [
        ([3, 4], targets, {"weights": weights}),
        ([5, 6, 7, 8], sparse_targets, {"weights": sparse_weights}),
        ([5], torch.tensor([8]), {"weights": torch.tensor([2.0])}),
    ]
    datums = sent(data)
    assert datums[1].loss_fn_inputs["target_tokens"].sparse_crow_indices is not None
    future, step = training.forward_backward(datums, "cross_entropy"), training.optim_step(params())
    known = own.backward(data, LOSSES["cross_entropy"][3])
    for found, expected in zip(future.result().loss_fn_outputs, known, strict=True):
        torch.testing.assert_close(found["logprobs"].to_torch(), expected, atol=1e-5, rtol=0)
    assert step.result().metrics == pytest.approx({"grad_norm": own.step()}, abs=1e-4)
    check_equal(server, training, own)


def test_a_loss_of_the_clients_own_is_learned(
    server: RunningTinker, client: tinker.ServiceClient, base: BaseModel
) -> None:
    """The SDK computes it from the log-probabilities of a forward pass, and sends its slopes."""
    own = plain(base, 3, 8)
    training = client.create_lora_training_client(server.base, rank=3, seed=8).result()
    data = drawn(base, ("weights",))

    def squared(datums: list[types.Datum], logprobs: list[Tensor]) -> tuple[Tensor, dict[str, float]]:
        return torch.stack([(one**2).sum() for one in logprobs]).sum(), {"count": float(len(datums))}

    future, step = training.forward_backward_custom(sent(data), squared), training.optim_step(params())
    own.backward(data, lambda log, _: (log**2).sum())
    assert future.result().metrics["count"] == 4
    assert step.result().metrics == pytest.approx({"grad_norm": own.step()}, abs=1e-3)
    check_equal(server, training, own)


def test_a_forward_pass_learns_nothing(server: RunningTinker, client: tinker.ServiceClient, base: BaseModel) -> None:
    training = client.create_lora_training_client(server.base, rank=3, seed=8).result()
    data = drawn(base, ("weights",))
    found = training.forward(sent(data), "cross_entropy").result()
    own = plain(base, 3, 8)
    torch.testing.assert_close(
        found.loss_fn_outputs[1]["logprobs"].to_torch(), own.logprobs(*data[1][:2]).detach(), atol=1e-5, rtol=0
    )
    with pytest.raises(tinker.RequestFailedError, match="no gradient: send forward_backward before optim_step"):
        training.optim_step(params()).result()
    check_equal(server, training, own)


def test_how_much_goes_through_the_model_at_once_changes_nothing(base: BaseModel, tmp_path: Any) -> None:
    own, data = plain(base, 3, 8), drawn(base, ("weights",), lengths=(9, 2, 7, 3, 5))
    options = LearnerOptions(micro_batch_tokens=9, logit_chunk=2, recompute_layers=True)
    with running_tinker(base, tmp_path, options=options) as server, server.client() as client:
        training = client.create_lora_training_client(server.base, rank=3, seed=8).result()
        future, step = training.forward_backward(sent(data), "cross_entropy"), training.optim_step(params())
        known = own.backward(data, LOSSES["cross_entropy"][3])
        for found, expected in zip(future.result().loss_fn_outputs, known, strict=True):
            torch.testing.assert_close(found["logprobs"].to_torch(), expected, atol=1e-5, rtol=0)
        step.result()
        own.step()
        check_equal(server, training, own)


def test_models_of_several_ranks_layers_and_clients_do_not_mix(
    server: RunningTinker, client: tinker.ServiceClient, base: BaseModel
) -> None:
    """Four models of two clients, whose requests are all under way at the same time."""
    attention: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj")
    with server.client() as other:
        made = [
            (client.create_lora_training_client(server.base, rank=2, seed=1), plain(base, 2, 1)),
            (client.create_lora_training_client(server.base, rank=7, seed=2), plain(base, 7, 2)),
            (other.create_lora_training_client(server.base, rank=2, seed=3), plain(base, 2, 3)),
            (
                other.create_lora_training_client(server.base, rank=4, seed=4, train_mlp=False),
                plain(base, 4, 4, targets=tuple(sorted(attention))),
            ),
        ]
        ready = [(future.result(), own) for future, own in made]
        waiting = []
        for turn in range(3):
            for number, (training, own) in enumerate(ready):
                batch = drawn(base, ("weights",), seed=10 * turn + number)
                waiting.append(training.forward_backward(sent(batch), "cross_entropy"))
                waiting.append(training.optim_step(params()))
                own.backward(batch, LOSSES["cross_entropy"][3])
                own.step()
        for future in waiting:
            future.result()
        for training, own in ready:
            check_equal(server, training, own)
        assert len({training.model_id for training, _ in ready}) == 4
        assert ready[1][0].get_info().lora_rank == 7


def test_a_seed_decides_how_an_adapter_begins(server: RunningTinker, client: tinker.ServiceClient) -> None:
    paths = []
    for seed in (5, 5, 6, None, None):
        training = client.create_lora_training_client(server.base, rank=2, seed=seed).result()
        paths.append(training.save_weights_for_sampler("begin").result().path)
    first, second, third, fourth, fifth = (
        torch.cat([one.ravel() for one in adapter_of(server, path).values()]) for path in paths
    )
    assert torch.equal(first, second)
    assert not torch.equal(first, third)
    assert not torch.equal(fourth, fifth)


@pytest.fixture
def trained(server: RunningTinker, client: tinker.ServiceClient, base: BaseModel) -> tinker.TrainingClient:
    training = client.create_lora_training_client(server.base, rank=3, seed=8).result()
    training.forward_backward(sent(drawn(base, ("weights",))), "cross_entropy")
    training.optim_step(params()).result()
    return training


def test_training_goes_on_from_a_saved_state_as_if_it_had_not_stopped(
    server: RunningTinker, client: tinker.ServiceClient, base: BaseModel, trained: tinker.TrainingClient
) -> None:
    """With the optimiser bit by bit; without it the weights are the same and AdamW begins anew."""
    path = trained.save_state("state").result().path
    resumed = client.create_training_client_from_state_with_optimizer(path).result()
    anew = client.create_training_client_from_state(path).result()
    assert resumed.get_info().lora_rank == 3
    found = []
    for number, training in enumerate((trained, resumed, anew)):
        training.forward_backward(sent(drawn(base, ("weights",), seed=9)), "cross_entropy")
        training.optim_step(params()).result()
        found.append(adapter_of(server, training.save_weights_for_sampler(f"end{number}").result().path))
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])
    assert any(not torch.allclose(found[0][name], found[2][name], atol=1e-5) for name in found[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # the SDK prefers a new client
        trained.load_state_with_optimizer(path).result()
    trained.forward_backward(sent(drawn(base, ("weights",), seed=9)), "cross_entropy")
    trained.optim_step(params()).result()
    again = adapter_of(server, trained.save_weights_for_sampler("again").result().path)
    assert all(torch.equal(found[0][name], again[name]) for name in again)


def test_saved_weights_outlive_the_server(base: BaseModel, tmp_path: Any) -> None:
    data = sent(drawn(base, ("weights",)))
    with running_tinker(base, tmp_path) as server, server.client() as client:
        training = client.create_lora_training_client(server.base, rank=3, seed=8).result()
        training.forward_backward(data, "cross_entropy")
        training.optim_step(params()).result()
        known = training.forward(data, "cross_entropy").result().loss_fn_outputs[0]["logprobs"].tolist()
        path = training.save_state("kept", user_metadata={"of": "me"}).result().path
    with running_tinker(base, tmp_path) as server, server.client() as client:
        training = client.create_training_client_from_state(path).result()
        assert training.forward(data, "cross_entropy").result().loss_fn_outputs[0]["logprobs"].tolist() == known
        rest = tinker.RestClient(base_url=server.address, api_key="tml-test")
        (listed,) = rest.list_checkpoints(path.split("/")[2]).result().checkpoints
        assert (listed.tinker_path, listed.checkpoint_type, listed.user_metadata) == (path, "training", {"of": "me"})
        rest.delete_checkpoint(path.split("/")[2], "weights/kept").result()
        with pytest.raises(tinker.RequestFailedError, match="is not saved here"):
            client.create_training_client_from_state(path).result()


def test_names_and_paths_that_lead_elsewhere_are_refused(
    client: tinker.ServiceClient, trained: tinker.TrainingClient
) -> None:
    for name in ("../../up", "a/b", "", ".hidden", "x" * 200, "a\x00b"):
        with pytest.raises(tinker.RequestFailedError, match="is no path of saved weights"):
            trained.save_state(name).result()
    for path in ("tinker://../weights/x", "tinker://a/weights/../../x", "/etc/passwd", "tinker://a/other/x"):
        with pytest.raises(tinker.RequestFailedError, match="is no path of saved weights"):
            client.create_training_client_from_state(path).result()
    trained.save_state("once").result()
    with pytest.raises(tinker.RequestFailedError, match="exists: take another name"):
        trained.save_state("once").result()
    trained.save_state("once", overwrite=True).result()
    with pytest.raises(tinker.RequestFailedError, match="ttl_seconds is 5"):
        trained.save_state("short", ttl_seconds=5).result()
    sampler = trained.save_weights_for_sampler("sampler").result().path
    with pytest.raises(tinker.RequestFailedError, match="has no state of an optimiser"):
        client.create_training_client_from_state_with_optimizer(sampler).result()


def datum(tokens: list[int], **inputs: Any) -> types.Datum:
    return types.Datum(model_input=types.ModelInput.from_ints(tokens), loss_fn_inputs=inputs)


WRONG: Mapping[str, tuple[types.Datum, str, dict[str, float] | None, str]] = {
    "no such loss": (datum([3], target_tokens=[4], weights=[1.0]), "crossentropy", None, "Did you mean"),
    "no weights": (datum([3], target_tokens=[4]), "cross_entropy", None, "datum 0 has no 'weights'"),
    "no targets": (datum([3], weights=[1.0]), "cross_entropy", None, "datum 0 has no target_tokens"),
    "more than wanted": (
        datum([3], target_tokens=[4], weights=[1.0], advantages=[1.0]), "cross_entropy", None,
        "no use for 'advantages'",
    ),
    "other lengths": (datum([3, 4], target_tokens=[4], weights=[1.0]), "cross_entropy", None, r"tokens is \[1\]"),
    "other shapes": (datum([3], target_tokens=[4], weights=[1.0, 2.0]), "cross_entropy", None, r"weights is \[2\]"),
    "an id too high": (datum([99_999], target_tokens=[4], weights=[1.0]), "cross_entropy", None, "outside 0 to 86"),
    "a target below 0": (datum([3], target_tokens=[-1], weights=[1.0]), "cross_entropy", None, "outside 0 to 86"),
    "no tokens": (datum([], target_tokens=[], weights=[]), "cross_entropy", None, "datum 0 has 0 tokens|float"),
    "too long": (
        datum([3] * 5000, target_tokens=[3] * 5000, weights=[1.0] * 5000), "cross_entropy", None, "5000 tokens",
    ),
    "not finite": (datum([3], target_tokens=[4], weights=[float("nan")]), "cross_entropy", None, "is not finite"),
    "a ratio of infinity": (
        datum([3], target_tokens=[4], logprobs=[-3e38], advantages=[1.0]), "importance_sampling", None, "the loss is",
    ),
    "no beta": (datum([3], target_tokens=[4], logprobs=[-1.0], advantages=[1.0]), "dro", None, "beta is None"),
    "a setting of another loss": (
        datum([3], target_tokens=[4], logprobs=[-1.0], advantages=[1.0]), "ppo", {"beta": 1.0}, "has no 'beta'",
    ),
    "several targets of one": (
        types.Datum(
            model_input=types.ModelInput.from_ints([3]),
            loss_fn_inputs={
                "target_tokens": types.TensorData.from_numpy(np.array([[4, 5]])),
                "logprobs": types.TensorData.from_numpy(np.ones((1, 2), np.float32)),
                "advantages": types.TensorData.from_numpy(np.ones((1, 2), np.float32)),
            },
        ),
        "ppo", None, r"target_tokens is \[1, 2\]; ppo needs \[1\]",
    ),
    "a loss of records that are not kept": (
        datum([3], target_tokens=[4], logprobs=[-1.0], advantages=[1.0]), "stable_reinforce", None, "no loss",
    ),
    "an image": (
        types.Datum(
            model_input=types.ModelInput(chunks=[types.ImageChunk(data=b"x", format="png")]),
            loss_fn_inputs={"target_tokens": [4], "weights": [1.0]},  # type: ignore[dict-item]
        ),
        "cross_entropy", None, "tokens alone",
    ),
}  # fmt: skip


def test_wrong_data_are_refused_whole_and_the_step_after_them_too(
    server: RunningTinker, client: tinker.ServiceClient, base: BaseModel
) -> None:
    """Nothing of a step is learned whose data did not all arrive; the model can go on after that."""
    own, data = plain(base, 3, 8), drawn(base, ("weights",))
    training = client.create_lora_training_client(server.base, rank=3, seed=8).result()
    for case, (wrong, loss, config, said) in WRONG.items():
        good = training.forward_backward(sent(data), "cross_entropy")
        bad, step = training.forward_backward([wrong], loss, config), training.optim_step(params())  # type: ignore[arg-type]
        good.result()
        with pytest.raises(tinker.RequestFailedError, match=said):
            bad.result()
        with pytest.raises(tinker.RequestFailedError, match="no step was made"):
            step.result()
        assert case
    training.forward_backward(sent(data), "cross_entropy")
    training.optim_step(params()).result()
    own.backward(data, LOSSES["cross_entropy"][3])
    own.step()
    check_equal(server, training, own)


def test_wrong_settings_of_models_and_steps_are_refused(
    server: RunningTinker, client: tinker.ServiceClient, trained: tinker.TrainingClient, base: BaseModel
) -> None:
    with pytest.raises(tinker.RequestFailedError, match="no base model 'Qwen/Qwen3-8B' here; this server has"):
        client.create_lora_training_client("Qwen/Qwen3-8B").result()
    with pytest.raises(tinker.RequestFailedError, match="rank is 0; 1 to 512"):
        client.create_lora_training_client(server.base, rank=0).result()
    with pytest.raises(tinker.RequestFailedError, match="attention and MLP layers, and the client wants neither"):
        client.create_lora_training_client(server.base, train_mlp=False, train_attn=False).result()
    with pytest.raises(tinker.RequestFailedError, match="trained by AdamW, not by 'dimuon'"):
        client.create_lora_training_client(server.base, optimizer=types.DimuonOptimizerConfig()).result()
    with pytest.raises(tinker.RequestFailedError, match="save_weights_external is not offered here"):
        trained.save_weights_external("x").result()
    for wrong, said in (
        (("lr", -1.0), "lr is -1"),
        (("beta1", 1.0), "beta1 is 1"),
        (("eps", float("inf")), "eps: Input should be a valid number"),
    ):
        trained.forward_backward(sent(drawn(base, ("weights",))), "cross_entropy").result()
        with pytest.raises(tinker.RequestFailedError, match=said):
            trained.optim_step(params({**ADAM, wrong[0]: wrong[1]})).result()


def test_the_layers_that_a_client_names_are_those_that_are_trained(
    server: RunningTinker, client: tinker.ServiceClient
) -> None:
    for flags, names in (
        ({"train_attn": False}, {"gate_proj", "up_proj", "down_proj"}),
        ({"train_mlp": False}, {"q_proj", "k_proj", "v_proj", "o_proj"}),
        ({}, set(LoraOptions().targets)),
    ):
        training = client.create_lora_training_client(server.base, rank=2, **flags).result()
        tensors = adapter_of(server, training.save_weights_for_sampler("layers").result().path)
        assert {name.split(".")[-3] for name in tensors} == names
