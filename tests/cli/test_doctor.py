"""`mas doctor`: what it says of a model that works, and that it fails where one does not."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import BaseFor

from mas.core.errors import ModelError
from mas.serving.model import tiny_tokenizer
from mas.serving.model_text import HubTokenizer
from mas.training import diagnosis
from mas.training.diagnosis import system_of, turn_end

Mas = Callable[..., Any]


@pytest.fixture
def doctor(mas: Mas, small_overrides: tuple[str, ...], base_for: BaseFor) -> Mas:
    base_for("relay")
    return lambda *words: mas("doctor", "scenario=relay", *small_overrides, *words)


def lines_of(out: str) -> dict[str, str]:
    return {line[:14].strip(): line[14:] for line in out.splitlines()}


def test_a_model_that_works_is_told_in_full(doctor: Mas) -> None:
    ran = doctor()
    assert ran.code == 0, ran.out + ran.err
    said = lines_of(ran.out)
    assert said["chat template"] == "none: roles use their compact templates"
    assert said["stop tokens"] == "<eos> (1)"
    assert said["context"].startswith("256 tokens")
    assert said["model"].endswith("parameters in float32")
    assert "adapters and optimisers" in said["memory"]
    assert "prompt tokens/s" in said["speed"]
    assert said.keys() >= {"prompts", "decoding", "learning", "time"}
    assert ran.out.splitlines()[-1] == "works here"


def test_it_fails_where_the_base_does_not_fit_unless_that_is_not_checked(
    doctor: Mas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mas.training.estimates.free_on", lambda options: 1000)
    ran = doctor()
    assert ran.code == 1
    assert "does not fit: base and adapters need" in lines_of(ran.out)["error"]
    assert ran.out.splitlines()[-1] == "does not work here: error"
    assert doctor("model.check_memory=false").code == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("model.prompts=chat",), "this model has no chat template"),
        (("model.lora.targets=[query]",), "name no linear layer"),
    ],
)
def test_it_fails_where_a_run_would(doctor: Mas, words: tuple[str, ...], message: str) -> None:
    ran = doctor(*words)
    assert ran.code == 1
    assert message in lines_of(ran.out)["error"]


def test_a_model_that_cannot_be_loaded_is_the_only_finding(mas: Mas) -> None:
    ran = mas("doctor", "scenario=relay", "model.path=./nowhere")
    assert ran.code == 1
    assert "does not exist" in lines_of(ran.out)["error"]
    assert "model" not in lines_of(ran.out)


def test_it_fails_where_prompts_do_not_fit_into_the_context(doctor: Mas) -> None:
    ran = doctor("model.max_context=5")
    assert ran.code == 1
    assert "prompts" in ran.out.splitlines()[-1]


def test_it_fails_where_decoding_or_packing_computes_something_else(
    doctor: Mas, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("check_decoding", "Learner"):
        with monkeypatch.context() as patch:

            def wrong(*_: Any, name: str = name) -> None:
                raise ModelError(f"{name} is wrong")

            patch.setattr(diagnosis, name, wrong)
            ran = doctor()
        assert (ran.code, lines_of(ran.out)["error"]) == (1, f"{name} is wrong")


def test_what_has_no_model_here_or_changes_nothing_is_refused(doctor: Mas) -> None:
    ran = doctor("engine=openai", "engine.remote.model=x")
    assert (ran.code, "there is none here to look at" in ran.err) == (2, True)
    ran = doctor("run_dir=runs/x")
    assert (ran.code, "run_dir" in ran.err) == (2, True)


LOOP = "{% for m in messages %}[{{ m.role }}]{{ m.content }}<eos>{% endfor %}[assistant]"


def templated(template: str) -> HubTokenizer:
    inner = tiny_tokenizer()
    inner.chat_template = template
    return HubTokenizer(inner)


@pytest.mark.parametrize(
    ("template", "told", "is_fatal"),
    [
        (LOOP, "it adds no system message", False),
        (
            "{% if messages[0].role != 'system' %}[system]be kind<eos>{% endif %}" + LOOP,
            "where a role has no system message it adds 'be kind'",
            False,
        ),
        (
            "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}" + LOOP,
            "it takes no system message, and roles have one",
            True,
        ),
        (
            "{% for m in messages if m.role != 'system' %}[{{ m.role }}]{{ m.content }}<eos>{% endfor %}",
            "it drops system messages, and roles have one",
            True,
        ),
        (  # as Gemma: in front of the user's own text
            "{% for m in messages %}{% if m.role == 'system' %}[user]{{ m.content }}\n\n"
            "{% elif loop.index0 and messages[loop.index0 - 1].role == 'system' %}{{ m.content }}<eos>"
            "{% else %}[{{ m.role }}]{{ m.content }}<eos>{% endif %}{% endfor %}",
            "it adds no system message",
            False,
        ),
    ],
    ids=["none", "its own", "refused", "dropped", "within the user's"],
)
def test_what_templates_do_with_system_messages(template: str, told: str, is_fatal: bool) -> None:
    assert system_of(templated(template)) == (told, is_fatal)


def test_the_token_behind_an_answer_is_found() -> None:
    tokenizer = templated(LOOP)
    assert turn_end(tokenizer) == tokenizer.inner.eos_token_id
    assert turn_end(templated(LOOP.replace("<eos>", "!"))) == tokenizer.encode("!")[0]
    assert turn_end(templated("{{ raise_exception('one turn') if messages | length > 1 }}")) is None


def test_a_model_whose_answers_end_with_another_token_is_told(mas: Mas, base_for: BaseFor, tmp_path: Path) -> None:
    model = shutil.copytree(base_for("relay").name, tmp_path / "model")
    (model / "chat_template.jinja").write_text(LOOP.replace("<eos>", "!"))
    said = lines_of(mas("doctor", "scenario=relay", f"model.path={model}").out)
    assert said["stop tokens"].startswith("<eos> (1); the template ends answers with ! (")


@pytest.mark.nightly
def test_the_pretrained_model_works_and_tells_its_system_message(smollm: Path, mas: Mas) -> None:
    ran = mas("doctor", "model=smollm2", "scenario=shop", "model.dtype=bfloat16")
    assert ran.code == 0, ran.out
    said = lines_of(ran.out)
    assert "it adds 'You are a helpful AI assistant named SmolLM" in said["chat template"]
    assert said["stop tokens"] == "<|im_end|> (2)"
    assert "134,515,008 parameters in bfloat16" in said["model"]
    assert said["packages"].endswith("in the cache")
