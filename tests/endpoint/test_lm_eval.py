"""lm-evaluation-harness evaluates a role: what it computes from the endpoint is what a plain model gives it."""

import json
import math
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from clients import offer
from conftest import BaseFor
from loopback import in_thread
from loud import loud_adapter
from pages import blocks, prose
from plain import LogProbs, plain_logprobs

from mas.endpoint import RoleModel, build_app, running
from mas.endpoint.client_keys import Entrance
from mas.serving.model import BaseModel
from mas.serving.transformers_engine import TransformersEngine

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

ROWS = (
    {"question": "E0723;", "choices": ["a>", "P0", "DR", "0"], "answer": 0},
    {"question": "P", "choices": ["01>", "E00"], "answer": 1},
    {"question": "E34U12;D", "choices": ["R>", "U"], "answer": 0},
)
CHOICES = {"output_type": "multiple_choice", "doc_to_choice": "{{choices}}", "doc_to_target": "answer"}
TASKS: dict[str, dict[str, Any]] = {
    "choices": CHOICES | {"metric_list": [{"metric": "acc"}]},
    "words": {
        "output_type": "generate_until",
        "doc_to_target": "{{choices[answer]}}",
        "generation_kwargs": {"until": [">"], "max_gen_toks": 7},
        "metric_list": [{"metric": "exact_match"}],
    },
    "texts": {
        "output_type": "loglikelihood_rolling",
        "doc_to_text": "",
        "doc_to_target": "{{question}}",
        "metric_list": [{"metric": "byte_perplexity"}],
    },
}


@pytest.fixture(scope="module")
def base(base_for: BaseFor) -> BaseModel:
    return base_for("relay")


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Tasks of one's own: a file each, with rows from a local file."""
    manager = pytest.importorskip("lm_eval.tasks")
    folder = tmp_path_factory.mktemp("tasks")
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    for name, task in TASKS.items():
        usual = {
            "task": name,
            "dataset_path": "json",
            "dataset_kwargs": {"data_files": {"test": str(folder / "rows.jsonl")}, "cache_dir": str(folder / "cache")},
            "test_split": "test",
            "doc_to_text": "{{question}}",
            "target_delimiter": "",
        }
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(usual | task))
    return manager.TaskManager(include_path=str(folder), include_defaults=False)


@pytest.fixture
def address(base: BaseModel) -> Iterator[str]:
    @asynccontextmanager
    async def serving() -> AsyncIterator[str]:
        engine = TransformersEngine(base)
        await engine.store.publish("a", loud_adapter(base, 1))
        app = build_app(offer(engine, {"a": RoleModel(max_tokens=5, stop=(";",))}), entrance=Entrance(key="sesame"))
        async with running(app) as url:
            yield f"{url}/v1"
        await engine.close()

    with in_thread(serving) as url:
        yield url


@pytest.fixture
def plain(base: BaseModel, tmp_path: Path) -> LogProbs:
    return plain_logprobs(base, {"a": loud_adapter(base, 1)}, tmp_path)


def evaluated(tasks: Any, kind: str, names: list[str], monkeypatch: pytest.MonkeyPatch, **options: Any) -> Any:
    """Results and samples of a run of lm-evaluation-harness."""
    lm_eval = pytest.importorskip("lm_eval")
    monkeypatch.setenv("OPENAI_API_KEY", "sesame")
    own = {name: value for name, value in options.items() if name == "apply_chat_template"}
    arguments = {"model": "a", "max_length": 64, "max_retries": 1} | options
    arguments = {name: value for name, value in arguments.items() if name not in (*own, "batch_size")}
    return lm_eval.simple_evaluate(
        model=kind,
        model_args=arguments,
        tasks=names,
        task_manager=tasks,
        batch_size=options.get("batch_size", 1),
        bootstrap_iters=0,
        **own,
    )


@pytest.mark.nightly(of=16)
@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 4},
        {"batch_size": 2, "num_concurrent": 3},
        {"tokenized_requests": False},
        {"tokenized_requests": False, "batch_size": 9},
    ],
)
def test_log_likelihoods_are_those_of_a_plain_model(
    tasks: Any,
    address: str,
    base: BaseModel,
    plain: LogProbs,
    options: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usual = {"base_url": f"{address}/completions", "tokenizer": base.name, "tokenizer_backend": "huggingface"}
    found = evaluated(tasks, "local-completions", ["choices", "texts"], monkeypatch, **usual | options)
    right, encode = [], base.tokenizer.encode
    for row, sample in zip(ROWS, found["samples"]["choices"], strict=True):
        question, sums = encode(str(row["question"])), []
        assert sample["doc"] == row
        for choice, ((value, is_greedy),) in zip(row["choices"], sample["resps"], strict=True):
            ids = (*question, *encode(choice))
            logprobs_LV = plain("a", ids)[len(question) - 1 :]
            sums.append(sum(float(logprobs_LV[place, token]) for place, token in enumerate(encode(choice))))
            assert float(value) == pytest.approx(sums[-1], abs=1e-3)
            assert is_greedy is (tuple(logprobs_LV.argmax(-1).tolist()) == encode(choice))
        right.append(max(range(len(sums)), key=sums.__getitem__) == row["answer"])
    assert found["results"]["choices"]["acc,none"] == pytest.approx(sum(right) / len(right))
    total = 0.0
    for row in ROWS:
        ids = (base.stop_ids[0], *encode(str(row["question"])))  # lm-evaluation-harness begins a text with the end
        logprobs_LV = plain("a", ids)
        total += sum(float(logprobs_LV[place, token]) for place, token in enumerate(ids[1:]))
    size = sum(len(str(row["question"])) for row in ROWS)
    assert found["results"]["texts"]["byte_perplexity,none"] == pytest.approx(math.exp(-total / size), rel=1e-3)


@pytest.mark.nightly(of=16)
@pytest.mark.parametrize("kind", ["local-completions", "local-chat-completions"])
def test_texts_are_generated(
    tasks: Any, address: str, base: BaseModel, plain: LogProbs, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_chat = kind == "local-chat-completions"
    path = "chat/completions" if is_chat else "completions"
    options = {"base_url": f"{address}/{path}", "tokenizer_backend": None, "apply_chat_template": is_chat}
    found = evaluated(tasks, kind, ["words"], monkeypatch, **options)
    said = [sample["resps"][0][0] for sample in found["samples"]["words"]]
    right = []
    for row in ROWS:
        ids = base.tokenizer.encode(str(row["question"]))
        text, drawn = "", list(ids)
        while len(drawn) < len(ids) + 7 and drawn[-1] not in base.stop_ids:
            drawn.append(int(plain("a", [*drawn, 0])[-1].argmax()))
            text = base.tokenizer.decode(drawn[len(ids) :])
            if ">" in text:
                break
        right.append(text.partition(">")[0])
    assert said == right
    assert any(said)


def test_the_task_of_the_page_is_evaluated(
    address: str, base: BaseModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = pytest.importorskip("lm_eval.tasks")
    (block,) = blocks("docs/evaluation.md", "text")
    (row,) = re.findall(r"`(\{.question.*\})`", prose("docs/evaluation.md"))
    monkeypatch.chdir(tmp_path)
    Path("animals.yaml").write_text(block.text.replace("data_files", f"cache_dir: {tmp_path / 'cache'}, data_files"))
    Path("animals.jsonl").write_text(f"{row}\n" * 3)
    options = {"base_url": f"{address}/completions", "tokenizer": base.name, "tokenizer_backend": "huggingface"}
    tasks = manager.TaskManager(include_path=".", include_defaults=False)
    found = evaluated(tasks, "local-completions", ["animals"], monkeypatch, **options, batch_size=8)
    assert [len(sample["resps"]) for sample in found["samples"]["animals"]] == [2, 2, 2]
    assert found["results"]["animals"]["acc,none"] in (0, 1)
