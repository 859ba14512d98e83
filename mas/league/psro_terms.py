"""What `mas league psro` is asked for, as one configuration of training, and the file that it goes on from."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from mas.config.load import load_config
from mas.config.options import Config
from mas.core.errors import ConfigError, RunDirectoryError
from mas.league.games import said_options
from mas.league.meta import MetaSolver
from mas.league.psro import Expected
from mas.observe.files import write_text_atomic

FILE = "psro.json"
_OURS = {
    "run_dir": "--out says where",
    "scenario": "--game says what is played",
    "train.steps": "--steps says how long",
    "train.start": "--start says whether answers begin with the last one",
    "algorithm.opponents": "the meta-strategy says who is met, and how often",
}
"""Keys that the command itself sets, and what sets them."""
_USUAL = ("train.eval_every=0", "train.eval_tasks=2", "learner.final_lr=0.1")
Start = Literal["last", "base"]


class GrowthTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What two populations are grown by.

    Attributes:
        game: id of a scenario of two seats. solver: whose mixes are trained against. iterations: so many.
        steps: of training, of each answer. overrides: as of `mas train`, for all answers.
        games: of each pair, an estimate; None: exactly where all moves can be scored, else `GAMES`.
        start: `last`: an answer begins with the adapters of the seat's one before; `base`: with fresh ones.
        risk: of the meta-solver `risk_averse`. enough: stop once answers gain no more; None: never.
    """

    game: str
    solver: MetaSolver
    iterations: int
    steps: int
    overrides: tuple[str, ...] = ()
    games: int | None = None
    start: Start = "last"
    risk: float = 0.5
    enough: float | None = None


class Payoffs(msgspec.Struct, frozen=True, kw_only=True):
    """What two players get, of `games` that they played; 0: exactly."""

    first: str
    second: str
    means: tuple[float, float]
    variances: tuple[float, float]
    games: int

    @property
    def expected(self) -> Expected:
        return Expected(self.means, self.variances)


class GrowthStep(msgspec.Struct, frozen=True, kw_only=True):
    """One iteration.

    Attributes:
        players: of each seat, the oldest first. mixes: of each seat, player -> share.
        value: what the first seat gets where both play their mix. inside, gained: see `mas.league.psro.Iteration`.
        nash_conv: of the mixes in the whole game, exactly; None: it cannot be computed.
        tokens: drawn by all trainings so far, those of the answers to this iteration's mixes not yet among them.
    """

    number: int
    players: tuple[tuple[str, ...], tuple[str, ...]]
    mixes: tuple[Mapping[str, float], Mapping[str, float]]
    value: float
    inside: float
    gained: float | None
    nash_conv: float | None
    tokens: int


class Growth(msgspec.Struct, kw_only=True):
    """All that is known, as `psro.json` has it.

    Attributes:
        terms: with these it goes on. is_exact: payoffs are computed, not played.
        answers: player -> tokens of its training, of those that are trained.
        payoffs: of every pair that met.
    """

    terms: GrowthTerms
    is_exact: bool | None = None
    answers: dict[str, int] = {}
    payoffs: list[Payoffs] = []
    iterations: list[GrowthStep] = []


def training_of(terms: GrowthTerms) -> Config:
    """What every answer is trained by. Where the overrides do not say otherwise: `algorithm=spiral`, one adapter per
    seat, a learning rate that falls to a tenth, and hardly any evaluation, as a team of two answers says little.

    Raises:
        ConfigError: overrides of what the command says itself, or what `load_config` or `said_options` refuses.
    """
    kind, options = said_options(terms.game)
    for override in terms.overrides:
        key = override.lstrip("+").partition("=")[0]
        why = next((why for ours, why in _OURS.items() if key == ours or key.startswith(f"{ours}.")), None)
        if why is not None:
            raise ConfigError(f"{override!r}: {why}; leave it out")
    has_algorithm = any(override.startswith("algorithm=") for override in terms.overrides)
    lines = [f"scenario={kind}", *([] if has_algorithm else ["algorithm=spiral"]), "algorithm.policy=per_role"]
    lines += [f"+scenario.options.{name}={value}" for name, value in options.items()]
    return load_config([*lines, *_USUAL, *terms.overrides, f"train.steps={terms.steps}"])


def command_of(terms: GrowthTerms, out: Path) -> list[str]:
    """The words of the command line that mean these terms."""
    said = {name: value for name, value in msgspec.to_builtins(terms).items() if name != "overrides"}
    words = [word for name, value in said.items() if value is not None for word in (f"--{name}", str(value))]
    return ["mas", "league", "psro", *words, "--out", str(out), *terms.overrides]


def open_growth(terms: GrowthTerms, out: Path) -> Growth:
    """What is known of it; nothing yet where nobody began.

    Raises:
        RunDirectoryError: the file cannot be read, or was begun with other terms (more iterations may be asked for).
    """
    path = out / FILE
    if not path.is_file():
        return Growth(terms=terms)
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Growth)
    except (OSError, msgspec.MsgspecError) as error:
        raise RunDirectoryError(f"{path} cannot be read: {error}; restore it, or take another --out") from error
    before, now = msgspec.to_builtins(found.terms), msgspec.to_builtins(terms)
    for name, value in before.items():
        if name != "iterations" and now[name] != value:
            raise RunDirectoryError(
                f"psro in {out} began with {name} {_said(value)}, and now {name} is {_said(now[name])}: go on as it "
                "began, or take another --out"
            )
    found.terms, found.iterations = terms, []
    return found


def keep(growth: Growth, out: Path) -> None:
    """Write it down."""
    out.mkdir(parents=True, exist_ok=True)
    write_text_atomic(out / FILE, msgspec.json.format(msgspec.json.encode(growth)).decode() + "\n")


def _said(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
