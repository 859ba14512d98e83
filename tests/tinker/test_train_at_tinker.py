"""`engine=tinker`: teams that a Tinker service samples and trains, with the real SDK on our own server."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import tinker
import torch
from parts import make_turn
from rich.console import Console
from rows import batch_of
from tinker_server_thread import RunningTinker

from mas.algorithms.parts.losses.tokens import LossOptions
from mas.config.load import load_config
from mas.config.options import LearnerOptions
from mas.core.engine import AdapterRef, Engine
from mas.core.errors import ConfigError, EngineError, TrainingError, UnknownAdapter
from mas.observe.metrics import read_metrics
from mas.runs.resolve import configured_scenario, resolve_training
from mas.runs.train import train_in_directory
from mas.serving.model import BaseModel
from mas.serving.remote_tinker import TinkerEngine
from mas.testing.engine import EngineContract
from mas.training.batch import TrainRow
from mas.training.check_tinker import tinker_loss
from mas.training.engines import start_served
from mas.training.learner import Learner
from mas.training.tinker_adapters import TinkerLearner
from mas.training.trainer import TrainingOutcome

KEY = "tml-of-the-run"
SEEDS = {"planner": 3, "executor": 4}


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINKER_API_KEY", KEY)


def words(server: RunningTinker, *more: str) -> list[str]:
    given = {word.partition("=")[0] for word in more}
    usual = [
        "scenario=relay",
        "engine=tinker",
        f"engine.remote.url={server.address}",
        "algorithm.loss.entropy=0",
        "algorithm.loss.dual_clip=null",
        "train.tasks_per_step=8",
        "train.eval_tasks=8",
        "train.eval_first=false",
    ]
    has_loss = not {"algorithm=dpo", "algorithm=training_free"} & set(more)
    kept = [word for word in usual if has_loss or not word.startswith("algorithm.loss")]
    return [*(word for word in kept if word.partition("=")[0] not in given), *more]


def trained(server: RunningTinker, run: Path, *more: str) -> TrainingOutcome:
    config = load_config(words(server, *more, f"run_dir={run}"))
    return train_in_directory(config, configured_scenario(config), console=Console(quiet=True))


async def engine_of(server: RunningTinker, saved: dict[str, str] | None = None) -> TinkerEngine:
    setup = resolve_training(load_config(words(server)))
    engine = (await start_served(setup, saved or {})).engine
    assert isinstance(engine, TinkerEngine)
    return engine


def tensors(server: RunningTinker, client: tinker.TrainingClient) -> list[torch.Tensor]:
    weights = server.service.training.models[client.model_id].adapter.weights
    return [one.detach().clone() for one in weights.parameters()]


async def clients_of(engine: TinkerEngine, rank: int) -> dict[str, tinker.TrainingClient]:
    return {
        name: await engine.service.create_lora_training_client(engine.model, rank=rank, seed=seed)
        for name, seed in SEEDS.items()
    }


def rows(base: BaseModel) -> list[TrainRow]:
    """Of two roles, whose log-probabilities are some way off, so that some ratios are beyond the bounds."""
    turns, advantages, noise = list[Any](), list[float](), torch.Generator().manual_seed(1)
    for role in SEEDS:
        for index in range(8):
            prompt, said = (40, 41, 42, 43 + index % 2), tuple(range(44, 46 + index % 3))
            with torch.no_grad():
                all_TV = base.model(input_ids=torch.tensor([[*prompt, *said]])).logits[0].log_softmax(-1)
            own = [float(all_TV[len(prompt) - 1 + place, token]) for place, token in enumerate(said)]
            off = (0.3 * torch.randn(len(said), generator=noise)).tolist()
            logprobs = tuple(value + shift for value, shift in zip(own, off, strict=True))
            more = {"trajectory": f"{role}{index}", "group": f"g{index // 4}"}
            turns.append(make_turn(role=role, prompt_ids=prompt, completion_ids=said, logprobs=logprobs, **more))
            advantages.append((index % 4 - 1.5) / 2)
    return batch_of(turns, advantages)


NO_CAP: dict[str, Any] = {"importance_cap": None, "dual_clip": None}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "as it is": ({}, {}, "cispo"),
    "of a trajectory, with a cap": ({"ratio": "sequence", "surrogate": "sapo", "importance_cap": 1.2}, {}, "cispo"),
    "a cap in several updates": ({"dual_clip": None}, {"epochs": 2, "minibatches": 2}, "ppo"),
    "a low cap": ({"surrogate": "cispo", "importance_cap": 1.1}, {"epochs": 2}, "cispo"),
    "ppo": (NO_CAP, {}, "ppo"),
    "ppo in several updates": (NO_CAP, {"epochs": 2, "minibatches": 2}, "ppo"),
    "one bound": ({**NO_CAP, "clip_high": None}, {}, "ppo"),
    "no bound": ({**NO_CAP, "clip_low": None, "clip_high": None}, {}, "importance_sampling"),
    "cispo": ({**NO_CAP, "surrogate": "cispo", "clip_low": None, "clip_high": 0.1}, {}, "cispo"),
    "gspo": ({**NO_CAP, "ratio": "turn", "clip_low": 0.05, "clip_high": 0.05}, {"epochs": 2}, "gspo"),
    "reinforce": ({**NO_CAP, "surrogate": "reinforce"}, {"epochs": 2}, "cross_entropy"),
}


@pytest.mark.parametrize("case", CASES)
async def test_a_step_is_that_of_the_learner_here(case: str, server: RunningTinker, base: BaseModel) -> None:
    """Weights to 1e-5 and metrics to 1e-4, for every loss that the service has, with clipping, decay and a falling
    learning rate."""
    own_loss, passes, name = CASES[case]
    loss = LossOptions(**{"entropy": 0.0} | own_loss)
    options = LearnerOptions(lr=0.01, weight_decay=0.1, clip_norm=0.5, **passes)
    assert tinker_loss(loss, options).name == name
    batch, lora = rows(base), base.options.lora
    local = Learner(base, {role: base.bank.create(lora, seed) for role, seed in SEEDS.items()}, options, loss)
    engine = await engine_of(server)
    learner = TinkerLearner(options, loss, has_canary=False)
    learner.engine, learner.clients = engine, await clients_of(engine, lora.rank)
    begun = {role: tensors(server, client) for role, client in learner.clients.items()}
    for scale in (1.0, 0.5):
        wanted, got = local.step(batch, lr_scale=scale), await in_thread(learner, batch, scale)
        assert got.keys() == wanted.keys() == SEEDS.keys()
        for role, metrics in got.items():
            assert metrics == pytest.approx({key: wanted[role][key] for key in metrics}, abs=1e-4)
            assert set(wanted[role]) - set(metrics) == {"entropy"}
    assert learner.updates == local.updates
    for role, client in learner.clients.items():
        now = tensors(server, client)
        assert all((a - b).abs().max() > 1e-3 for a, b in zip(now, begun[role], strict=True))
        for mine, its in zip(local.adapters[role].parameters(), now, strict=True):
            torch.testing.assert_close(its, mine.detach(), atol=1e-5, rtol=0)
    await engine.close()


async def in_thread(learner: TinkerLearner, batch: list[TrainRow], scale: float) -> dict[str, dict[str, float]]:
    from asyncio import to_thread

    return await to_thread(lambda: learner.step(batch, lr_scale=scale))


async def test_log_probabilities_are_those_of_the_policy_and_of_the_base(
    server: RunningTinker, base: BaseModel
) -> None:
    from asyncio import to_thread

    batch, lora = rows(base), base.options.lora
    loss = LossOptions(entropy=0.0)
    local = Learner(base, {role: base.bank.create(lora, seed) for role, seed in SEEDS.items()}, LearnerOptions(), loss)
    engine = await engine_of(server)
    learner = TinkerLearner(LearnerOptions(), loss, has_canary=False)
    learner.engine, learner.clients = engine, await clients_of(engine, lora.rank)
    local.step(batch)
    await in_thread(learner, batch, 1.0)
    found = {}
    for is_reference in (False, True):
        wanted = local.logprobs(batch, is_reference=is_reference)
        got = await to_thread(lambda: learner.logprobs(batch, is_reference=is_reference))  # noqa: B023
        for row in batch:
            assert got[id(row.turn)] == pytest.approx(wanted[id(row.turn)], abs=1e-4)
        found[is_reference] = got[id(batch[0].turn)]
    assert found[False] != pytest.approx(found[True], abs=1e-3)
    with pytest.raises(TrainingError, match="does not tell entropies"):
        learner.entropies(batch)
    await engine.close()


async def test_samples_of_another_policy_end_the_training_before_a_step_is_made(
    server: RunningTinker, base: BaseModel
) -> None:
    engine = await engine_of(server)
    learner = TinkerLearner(LearnerOptions(), LossOptions(entropy=0.0), has_canary=True)
    learner.engine, learner.clients = engine, await clients_of(engine, base.options.lora.rank)
    with pytest.raises(TrainingError, match="were not drawn from the policy in training"):
        await in_thread(learner, rows(base), 1.0)
    for client in learner.clients.values():
        assert server.service.training.models[client.model_id].adapter.steps == 0
    await engine.close()


@pytest.mark.nightly
class TestTinkerEngine(EngineContract):
    """The contract of engines; completions come whole."""

    @pytest.fixture(autouse=True)
    def _server(self, server: RunningTinker) -> None:
        self.server = server

    async def make_engine(self) -> Engine:
        engine = await engine_of(self.server)
        for seed, name in enumerate(("a", "b")):
            client = await engine.service.create_lora_training_client(engine.model, rank=4, seed=seed)
            weights = self.server.service.training.models[client.model_id].adapter.weights
            noise = torch.Generator().manual_seed(seed)
            with torch.no_grad():
                for one in weights.parameters():
                    one += 0.2 * torch.randn(one.shape, generator=noise)
            engine.publish(name, await client.save_weights_and_get_sampling_client())
        return engine

    async def publish_again(self, engine: Engine) -> AdapterRef | None:
        assert isinstance(engine, TinkerEngine)
        return engine.publish("a", engine.base)


async def test_a_version_that_is_gone_is_an_unknown_adapter(server: RunningTinker) -> None:
    engine = await engine_of(server)
    engine.publish("a", engine.base)
    assert await engine.score((40,), (41,), "a@0") == await engine.score((40,), (41,))
    engine.publish("a", engine.base)
    with pytest.raises(UnknownAdapter, match="'a@0'"):
        await engine.score((40,), (41,), "a@0")
    await engine.close()


@pytest.mark.nightly
def test_a_team_learns(server: RunningTinker, tmp_path: Path) -> None:
    """Two roles, each with an adapter at the service, are paid more and more."""
    more = ("learner.lr=0.02", "train.tasks_per_step=16", "train.eval_every=0", "train.steps=8")
    outcome = trained(server, tmp_path / "run", *more)
    rewards = [metrics["reward"] for metrics in outcome.history]
    assert sum(rewards[-3:]) > sum(rewards[:3]) + 0.2
    adapters = outcome.history[0]["adapters"]
    assert max(adapters[role]["behaviour_gap"] for role in ("planner", "executor")) < 1e-4


@pytest.mark.nightly(of=16)
def test_a_run_that_was_resumed_is_one_that_was_not_and_is_played(
    server: RunningTinker, tmp_path: Path, mas: Any
) -> None:
    """A checkpoint has the paths of what the service saved, and nothing has the key."""
    small = (
        "train.checkpoint_every=1",
        "train.tasks_per_step=2",
        "algorithm.sampler.candidates=2",
        "train.eval_tasks=4",
    )
    whole = trained(server, tmp_path / "whole", *small, "train.steps=2")
    assert whole.progress.versions == {"planner": 2, "executor": 2}
    trained(server, tmp_path / "cut", *small, "train.steps=1")
    again = trained(server, tmp_path / "cut", *small, "train.steps=2")
    assert [metrics["reward"] for metrics in again.history] == [whole.history[1]["reward"]]
    saved = [
        json.loads((tmp_path / name / "checkpoints" / "step-000002" / "tinker.json").read_text())
        for name in ("whole", "cut")
    ]
    for role in ("planner", "executor"):
        first, second = (weights_at(server, one[role]["sampler"]) for one in saved)
        torch.testing.assert_close(first, second, atol=1e-4, rtol=0)  # batch mates at the service change last bits
    others = [weights_at(server, saved[0][role]["sampler"]) for role in ("planner", "executor")]
    assert (others[0] - others[1]).abs().max() > 1e-2
    shown = mas("eval", str(tmp_path / "whole"), "--tasks", "4", "--json", "-")
    assert shown.code == 0, shown.err
    lines = [line["eval"] for line in read_metrics(tmp_path / "whole" / "metrics.jsonl") if "eval" in line]
    greedy = [line["greedy"]["success"] for line in lines if "greedy" in line]
    assert json.loads(shown.out)["teams"]["served"]["success"] == greedy[-1]
    assert all(KEY not in text for text in texts_of(tmp_path))
    assert KEY not in shown.out + shown.err


@pytest.mark.nightly
def test_what_needs_adapters_in_files_says_that_they_are_at_the_service(
    server: RunningTinker, tmp_path: Path, mas: Any
) -> None:
    """Not that another engine would do: the run has no weights here. `mas run` plays with those of the service."""
    run, more = str(tmp_path / "run"), ("train.steps=1", "train.tasks_per_step=2", "train.eval_every=0")
    trained(server, Path(run), *more, "scenario=two_player", "algorithm=parallel_grpo", "train.eval_tasks=2")
    started = [f"train.start={run}", f"run_dir={tmp_path / 'next'}", "scenario=two_player", "algorithm=parallel_grpo"]
    db = str(tmp_path / "league.db")
    commands = (
        ["serve", run, "--port", "0"],
        ["serve", run, "engine.name=transformers"],
        ["export", run, "--card", "--out", str(tmp_path / "card")],
        ["train", *started],
        ["league", "run", "--game", "kuhn", "--player", "random", "--player", f"a=run:{run}", "--league", db],
        ["league", "enter", run, "--game", "kuhn", "--league", db],
    )
    for words in commands:
        ended = mas(*words)
        assert ended.code == 2, words
        assert "its adapters are at the Tinker service, and none is in a file here" in ended.err, words
    shown = mas("run", run)
    assert shown.code == 0, shown.err
    assert KEY not in shown.out + shown.err


def weights_at(server: RunningTinker, path: str) -> torch.Tensor:
    """All of them as one vector."""
    model, kind, name = path.removeprefix("tinker://").split("/")
    place = server.service.folder.directory / model.replace(":", "_") / kind / name
    tensors_at = safetensors.torch.load_file(place / "adapter_model.safetensors")
    return torch.cat([tensors_at[name].flatten() for name in sorted(tensors_at)])


def texts_of(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*"):
        if path.is_file():
            yield path.read_bytes().decode(errors="replace")


REFUSED = [
    ("algorithm.loss.entropy=0.01", "write algorithm.loss.entropy=0"),
    ("algorithm.loss.kl=0.1", "write algorithm.loss.kl=0, or algorithm.loss.kl_in=reward"),
    ("algorithm=ppo", "a critic is trained on the base here"),
    ("algorithm=dpo", "a preference loss is computed here"),
    ("train.staleness=1", "write train.staleness=0"),
    ("cluster.workers=2", "leave cluster out"),
    ("train.start=runs/other", "which cannot be sent: leave it out"),
    ("algorithm.loss.dual_clip=3", "write algorithm.loss.dual_clip=null"),
    ("algorithm.loss.surrogate=gmpo", "no loss like surrogate=gmpo"),
    ("model.lora.targets=[q_proj]", "model.lora.targets=['q_proj']: a Tinker service trains"),
    ("algorithm.loss.off_policy.veto=[0.5,2]", "write algorithm.loss.off_policy=null"),
    ("model.lora.alpha=8", "the service and its SDK decide it"),
    ("learner.pack=false", "the service and its SDK decide it"),
    ("engine.remote.retries=1", "the service and its SDK decide it"),
]


@pytest.mark.parametrize(("word", "said"), REFUSED, ids=[word for word, _ in REFUSED])
def test_what_a_service_cannot_give_is_refused_before_training(word: str, said: str, server: RunningTinker) -> None:
    with pytest.raises(ConfigError) as refused:
        resolve_training(load_config(words(server, word)))
    assert said in str(refused.value)


def test_a_role_that_samples_at_another_temperature_is_refused(server: RunningTinker, tmp_path: Path) -> None:
    team = tmp_path / "team.yaml"
    team.write_text(
        "name: warm\nprotocol: solo\nroles:\n  solo:\n    type: executor\n    template: 'S{table};{goal}>'\n"
        "    temperature: 0.7\n    max_tokens: 1\n"
    )
    with pytest.raises(ConfigError, match=r"samples at temperature 0\.7, and the service trains at temperature 1"):
        resolve_training(load_config(words(server, f"algorithm.team={team}")))


def test_a_service_that_is_not_there_or_refuses_the_key_is_one_sentence_and_leaves_no_run(
    server: RunningTinker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    with pytest.raises(EngineError, match=r"cannot be reached \(engine.remote.url\)"):
        trained(server, run, "engine.remote.url=http://127.0.0.1:9")
    with pytest.raises(EngineError, match="is no Tinker service: /api/v1/healthz answers 404"):
        trained(server, run, f"engine.remote.url={server.address}/v1")
    with pytest.raises(ConfigError, match=r"has no base .other.: set"):
        trained(server, run, "engine.remote.model=other")
    monkeypatch.delenv("TINKER_API_KEY")
    with pytest.raises(ConfigError, match="the environment variable TINKER_API_KEY, which is not set"):
        trained(server, run)
    assert not run.exists()


def test_roles_that_learn_as_text_play_with_the_base_of_a_service(server: RunningTinker, tmp_path: Path) -> None:
    more = ("algorithm=training_free", "algorithm.options.editor=quote", "train.steps=1", "train.eval_every=0")
    outcome = trained(server, tmp_path / "run", *more)
    assert outcome.progress.step == 1
    assert outcome.libraries.keys() == {"planner", "executor"}
