"""Training without gradients: teams get better by what they read, no weight changes, and a killed run ends the same."""

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import pytest
from conftest import BaseFor
from parts import SKILLED

from mas.algorithms.parts.experience.library import Library
from mas.bus.memory import MemoryBus
from mas.config.load import load_config
from mas.config.options import Config, ScenarioOptions
from mas.core.errors import CheckpointError, ConfigError, RunError
from mas.core.records import Episode
from mas.core.scenario import Scenario
from mas.graph.plan import compile_team
from mas.roles import build_role, build_roles
from mas.runs.resolve import resolve, resolve_training
from mas.runtime.agents import ModelEndpoint
from mas.runtime.team import TeamRuntime
from mas.scenarios import build_scenario
from mas.scenarios.world import FolderScenario
from mas.serving.model import BaseModel
from mas.testing.scripted import Answer, EditorScript, ScriptedEngine
from mas.training.check_setup import check_trainable
from mas.training.evaluate import Evaluation
from mas.training.session import TeamSession
from mas.training.trainer import Trainer, TrainingOutcome


def play(prompt: str, adapter: str | None, seed: int) -> str:
    """Relay's team: the executor looks letters up, the planner guesses one unless it has read which one works."""
    if found := re.search(r"E(\d{4});([abcd])>$", prompt):
        return found[1]["abcd".index(found[2])]
    known = re.search(rf"{prompt[-3:-1]}> (?:->|means) ([abcd])", prompt)
    return known[1] if known else Random(seed).choice("abcd")


def config_of(experience: Mapping[str, Any], **train: Any) -> Config:
    is_asked = experience.get("editor", "base") == "base"  # of a script, where a model that writes would be
    options = {"steps": 3, "tasks_per_step": 8, "eval_tasks": 24, "eval_every": 0, "checkpoint_every": 1} | train
    return Config.model_validate(
        {
            "scenario": {"name": "relay"},
            "model": {"path": "scripted"} if is_asked else SKILLED.model_dump(),
            "algorithm": {
                "name": "training_free",
                "update": "training_free",
                "sampler": {"mode": "parallel", "candidates": 5},
                "experience": experience,
            },
            "train": options,
        }
    )


class Killed(Exception):
    """Stands for the end of the process."""


class Notes:
    """A watcher that remembers, and kills the run after a step."""

    def __init__(self, killed_after: int | None = None) -> None:
        self.steps: list[dict[str, Any]] = []
        self.notes: list[tuple[int, Mapping[str, Any]]] = []
        self.success: list[float] = []
        self.prompts: list[tuple[str, str]] = []
        self._killed_after = killed_after

    def on_resume(self, step: int) -> None:
        pass

    def on_step(self, step: int, metrics: dict[str, Any], episodes: Sequence[Episode]) -> None:
        self.steps.append(metrics)
        self.prompts += [(line.agent, line.prompt) for episode in episodes for line in episode.lines]
        if step == self._killed_after:
            raise Killed

    def on_note(self, step: int, note: Mapping[str, Any]) -> None:
        self.notes.append((step, note))

    def on_evaluation(self, step: int, name: str, evaluation: Evaluation) -> None:
        if name == "sampled":
            self.success.append(evaluation.success)


@pytest.fixture
def relay() -> Scenario:
    return build_scenario(ScenarioOptions(name="relay"))


def trainer_of(
    config: Config, scenario: Scenario, answer: Answer = play, *, checkpoints: Path | None = None, chats: bool = False
) -> Trainer:
    """A trainer whose team uses a scripted engine."""
    setup = resolve_training(config, scenario)

    @asynccontextmanager
    async def opening(base: BaseModel | None) -> AsyncIterator[TeamSession]:
        engine = ScriptedEngine(answer, context=100_000, has_chat=chats)
        async with TeamRuntime(setup.plan, engine, MemoryBus(), adapters={}, chats=chats, timeout_s=60.0) as runtime:
            yield TeamSession(setup=setup, runtime=runtime)

    return Trainer(setup, None, opening=opening, checkpoints=checkpoints)


def same(first: TrainingOutcome, second: TrainingOutcome) -> bool:
    return (first.libraries, first.progress) == (second.libraries, second.progress)


async def test_a_team_that_reads_its_experiences_gets_better_by_quotations(relay: Scenario) -> None:
    notes = Notes()
    outcome = await trainer_of(config_of({"editor": "quote"}), relay).run(notes)
    # Untrained one letter in four is right; the planner needs four experiences, one for each goal.
    before, after = notes.success
    assert before < 0.5
    assert after == 1.0
    assert set(outcome.libraries["planner"].experiences) == {f"P{key}> -> {key.lower()}" for key in "ABCD"}
    assert outcome.adapters == {}
    versions = [metrics["experiences"]["planner"]["version"] for metrics in notes.steps]
    assert versions[0] == 1
    assert outcome.progress.versions["planner"] == outcome.libraries["planner"].version == versions[-1]


async def test_what_a_role_has_learned_stands_in_its_own_prompts_and_in_nobody_elses(relay: Scenario) -> None:
    notes = Notes()
    await trainer_of(config_of({"editor": "quote"}, steps=2), relay).run(notes)
    taught = {agent: [prompt for who, prompt in notes.prompts if who == agent] for agent in ("planner", "executor")}
    assert any("> -> " in prompt for prompt in taught["planner"])
    assert any("> -> " in prompt for prompt in taught["executor"])
    assert not any(re.search(r"E\d", prompt) for prompt in taught["planner"])
    assert not any("P" in prompt for prompt in taught["executor"])
    # What was quoted is what an agent saw, without what it had read before.
    texts = [text for _, note in notes.notes for text in note["experiences"].values()]
    assert max(text.count("->") for text in texts) == 1


async def test_what_a_chat_prompt_says_in_general_is_not_quoted(relay: Scenario) -> None:
    def guess(prompt: str, adapter: str | None, seed: int) -> str:
        return Random(seed).choice("abcd" if "\ngoal: " in prompt else "0123456789")

    config = config_of({"editor": "quote"}, steps=3, tasks_per_step=16)
    outcome = await trainer_of(config, relay, guess, chats=True).run(Notes())
    planner, executor = (outcome.libraries[role] for role in ("planner", "executor"))
    assert planner.version > 1, "libraries were read when later ones were written"
    rule = "Answer with exactly one of these and nothing else:"
    form = rf"goal: [A-D] {rule} a b c d -> [a-d]"
    assert all(re.fullmatch(form, text) for text in planner.experiences)
    form = rf"table: \d{{4}} planner says: [a-d] {rule} {' '.join('0123456789')} -> \d"
    assert all(re.fullmatch(form, text) for text in executor.experiences)


def pairs(text: str) -> list[str]:
    """What a model would learn from summaries, or find in new experiences or studies: letters that went well."""
    return sorted(set(re.findall(r"P[A-D]> means [a-d]", text)))


def summary(question: str) -> str:
    found = re.search(r"was shown:\n(P[A-D]>)\nIt answered:\n([a-d])", question)
    return f"{found[1]} means {found[2]}" if found and "scored 1" in question else "It failed."


async def test_a_language_model_as_editor_summarises_compares_and_consolidates(relay: Scenario) -> None:
    script = EditorScript(pairs, summary=summary)

    def answer(prompt: str, adapter: str | None, seed: int) -> str:
        return script(prompt, adapter, seed) if prompt.startswith("You coach") else play(prompt, adapter, seed)

    notes = Notes()
    outcome = await trainer_of(config_of({"editor": "base", "per_group": 2}), relay, answer).run(notes)
    assert notes.success[-1] == 1.0
    library = outcome.libraries["planner"].experiences
    assert set(library) == {f"P{key}> means {key.lower()}" for key in "ABCD"}
    assert outcome.libraries["executor"] == Library()
    first = notes.steps[0]["experiences"]
    telling = first["planner"]["groups_telling"]
    assert 0 < telling <= 8
    # Five summaries, experiences and operations for each group of the planner, and one consolidation.
    assert first["planner"]["editor_calls"] == 7 * telling + 1
    # The executor has nothing to learn: no operations are asked for, and nothing is to be consolidated.
    assert first["executor"]["editor_calls"] == 6 * telling
    spent = sum(metrics["experiences"][role]["editor_tokens"] for metrics in notes.steps for role in first)
    assert 0 < spent < outcome.progress.tokens
    own = [question for question in script.asked if "member 'planner'" in question]
    assert own
    assert not any(re.search(r"E\d{4}", question) for question in own), "the editor sees what the role saw, and no more"


async def test_an_editor_may_be_shown_the_whole_team(relay: Scenario) -> None:
    script = EditorScript([])

    def answer(prompt: str, adapter: str | None, seed: int) -> str:
        return script(prompt, adapter, seed) if prompt.startswith("You coach") else play(prompt, adapter, seed)

    await trainer_of(config_of({"sees": "team"}, steps=1), relay, answer).run(Notes())
    own = [question for question in script.asked if "member 'planner'" in question]
    assert any("Its team mate 'executor' was shown:\nE" in question for question in own)


async def test_answers_that_are_no_operations_are_recorded_and_change_nothing(relay: Scenario) -> None:
    broken = {"operation": "DELETE", "id": "G7"}
    script = EditorScript(["Look."], [broken, {"operation": "DROP TABLE"}])

    def answer(prompt: str, adapter: str | None, seed: int) -> str:
        return script(prompt, adapter, seed) if prompt.startswith("You coach") else play(prompt, adapter, seed)

    notes = Notes()
    outcome = await trainer_of(config_of({}, steps=1, tasks_per_step=4), relay, answer).run(notes)
    assert outcome.libraries == {"planner": Library(), "executor": Library()}
    refused = {note["role"]: note["refused"] for _, note in notes.notes}
    assert notes.steps[0]["experiences"]["planner"]["refused"] == len(refused["planner"]) > 0
    causes = " ".join(refusal["cause"] for refusal in refused["planner"])
    assert "its operation is 'DROP TABLE'" in causes
    assert "there is no experience 'G7'" in causes


async def test_a_question_that_is_too_long_for_the_editor_is_recorded_and_costs_no_step(relay: Scenario) -> None:
    notes = Notes()
    outcome = await trainer_of(config_of({"max_tokens": 100_000}, steps=1), relay).run(notes)
    assert outcome.progress.step == 1
    (refusal, *_) = notes.notes[0][1]["refused"]
    assert "cannot be asked" in refusal["cause"]


@pytest.mark.parametrize("killed_after", [2, 3])
async def test_a_killed_run_resumes_to_the_same_libraries(relay: Scenario, tmp_path: Path, killed_after: int) -> None:
    config = config_of({"editor": "quote", "most": 3}, steps=4)
    straight = await trainer_of(config, relay).run(Notes())
    with pytest.raises(Killed):
        await trainer_of(config, relay, checkpoints=tmp_path).run(Notes(killed_after))
    again = trainer_of(config, relay, checkpoints=tmp_path)
    assert again.resume()
    assert again.progress.step == killed_after - 1
    assert again.trainable.libraries["planner"].version > 0
    assert same(await again.run(Notes()), straight)
    assert len(straight.libraries["executor"].experiences) == 3


async def test_a_checkpoint_with_other_libraries_is_refused(relay: Scenario, tmp_path: Path) -> None:
    config = config_of({"editor": "quote"}, steps=1)
    await trainer_of(config, relay, checkpoints=tmp_path).run(Notes())
    with pytest.raises(CheckpointError, match=r"libraries of \['executor', 'planner'\], the run has \['executor'\]"):
        trainer_of(config, with_planner(relay, trainable=False), checkpoints=tmp_path).resume()


async def test_no_weight_of_the_base_changes_and_versions_rise(base_for: BaseFor, relay: Scenario) -> None:
    base = base_for("relay", SKILLED)

    def bits() -> str:
        tensors = base.model.state_dict().items()
        return sha256(b"".join(name.encode() + tensor.numpy().tobytes() for name, tensor in tensors)).hexdigest()

    before, notes = bits(), Notes()
    config = config_of({"editor": "quote"}, steps=2, eval_tasks=4)
    outcome = await Trainer(resolve_training(config, relay), base).run(notes)
    assert bits() == before
    assert outcome.adapters == {}
    assert outcome.libraries["executor"].version == 2
    assert notes.steps[0]["adapters"] == {}


async def test_only_experiences_of_a_role_change_while_a_team_plays(relay: Scenario) -> None:
    team = relay.teams["team"]
    plan = compile_team(team, build_roles(team))
    spec = team.roles["planner"]
    async with TeamRuntime(plan, ScriptedEngine(play), MemoryBus(), adapters={}) as runtime:
        with pytest.raises(RunError, match="only experiences change"):
            runtime.teach({"planner": build_role("planner", spec.model_copy(update={"max_tokens": 9}))})
        with pytest.raises(RunError, match="'judge' cannot be taught"):
            runtime.teach({"judge": build_role("judge", spec)})


def with_planner(scenario: Scenario, **changes: Any) -> Scenario:
    """The scenario with its planner changed."""
    assert isinstance(scenario, FolderScenario)
    team = scenario.teams["team"]
    roles = dict(team.roles) | {"planner": team.roles["planner"].model_copy(update=changes)}
    other = build_scenario(ScenarioOptions(name="relay"))
    object.__setattr__(other, "teams", {**scenario.teams, "team": team.model_copy(update={"roles": roles})})
    return other


async def test_a_role_begins_with_the_experiences_of_its_team(relay: Scenario) -> None:
    scenario = with_planner(relay, experiences=("PA> -> a",))
    outcome = await trainer_of(config_of({"editor": "quote"}, steps=0), scenario).run(Notes())
    assert outcome.libraries["planner"] == Library(("PA> -> a",))


async def test_a_peer_can_be_the_editor(relay: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    script = EditorScript(pairs, summary=summary)
    engine = ScriptedEngine(script, context=100_000)

    async def start(options: Any, model: Any, place: str) -> ModelEndpoint:
        assert (options.url, place) == ("http://127.0.0.1:1/v1", "peers.coach")
        return ModelEndpoint(engine=engine, chats=True)

    monkeypatch.setattr("mas.training.engines.start_model_endpoint", start)
    config = config_of({"editor": "coach"}, steps=1)
    config = config.model_copy(
        update={"peers": Config.model_validate({"peers": {"coach": {"url": "http://127.0.0.1:1/v1"}}}).peers}
    )
    outcome = await trainer_of(config, relay).run(Notes())
    assert outcome.libraries["planner"].version == 1
    assert script.asked
    with pytest.raises(Exception, match="closed"):
        await engine.generate(engine.requests[0])


def test_the_tiny_base_is_no_editor() -> None:
    config = load_config(["scenario=relay", "algorithm=training_free"])
    with pytest.raises(ConfigError, match=r"the tiny base writes no sentences: name a model .* or editor=quote"):
        check_trainable(resolve(config))
    for words in (["algorithm.options.editor=quote"], ["model.path=somewhere"]):
        check_trainable(
            resolve(load_config(["scenario=relay", "algorithm=training_free", *words]), build_scenario(config.scenario))
        )


def test_an_editor_that_is_no_peer_is_refused(relay: Scenario) -> None:
    with pytest.raises(ConfigError, match=r"peers\.qoute\.url .*Did you mean 'quote'"):
        Trainer(resolve_training(config_of({"editor": "qoute"}), relay), None)
