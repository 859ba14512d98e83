"""The base model that all roles of a setup share, loaded once; the tiny base is made first where it is not cached.

The tiny base's warm start is next-token learning on a scenario's scripted demonstrations, cached by content.
Reinforcement learning sharpens skills, it does not invent them: an expert's demonstrations give the base each role's
skill, a noisy teacher's then bury half of it under habits. The cache key covers options, demonstrations and this
recipe, so a stale base is never used.
"""

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import torch
from safetensors import SafetensorError
from transformers.utils.logging import disable_progress_bar

from mas.config.options import SMOLLM2, TINY, TinyOptions
from mas.core.errors import MissingPackage, ModelError
from mas.core.host import cache_directory
from mas.core.remote_agent import check_a2a
from mas.core.role import SELF, parse_template
from mas.core.scenario import Scenario
from mas.core.seeds import digest
from mas.observe.durations import clock_time
from mas.observe.files import making_directory
from mas.serving.base_measures import Footprint
from mas.serving.forward import pad_left, right_aligned
from mas.serving.model import ALPHABET, BaseModel, device_of, load_base, load_text, tiny_model, tiny_tokenizer
from mas.serving.model_sources import smollm2
from mas.serving.sharded_base import Shard
from mas.tools.mcp_client import check_sdk
from mas.training.estimates import Work, check_memory, needs_of
from mas.training.setup import Setup

Note = Callable[[str], None]
"""Told a line of text for people."""
Progress = Callable[[int, int, float], None]
_RECIPE = 1
"""Raised whenever the recipe below changes, so that cached bases are made anew."""


def open_base(
    setup: Setup, note: Note, *, is_trained: bool = False, home: Scenario | None = None, rank: int | None = None
) -> BaseModel:
    """The base model that all roles share; a built-in one is made first if it is not in the cache. What memory it and
    its use take is estimated before it is loaded, but for the tiny base.

    Args:
        home: the scenario that the tiny base was made for; None: the setup's.
        rank: the learner rank that this process is, from 0, which holds its part with `cluster.shard_base`; None: it
            holds the whole base in any case.

    Raises:
        ModelError: it cannot be made or loaded, or does not fit; see `check_memory`. MissingPackage: see
            `check_packages`.
    """
    check_packages(setup)
    path = base_path(setup, note, home)
    text = load_text(setup.model, path)
    for role, spec in setup.team.roles.items():
        is_shown = spec.history == 1 and spec.template is not None and SELF in parse_template(spec.template).names
        if spec.history and spec.voice == "engine" and not text.chats and not is_shown:
            note(
                f"note: compact prompts, as the tiny base's, leave out the earlier answers of {role} (history: "
                f"{spec.history}); a model that chats sees them"
            )
    cluster = setup.cluster
    shard = Shard(rank, cluster.learners) if rank is not None and cluster.shard_base else None
    if setup.model.path != TINY:
        work, footprint = Work.bound(setup, text), Footprint.of(setup.model, path)
        if shard is not None and device_of(setup.model.device).type != "cpu":
            footprint = replace(footprint, weights=footprint.sharded_weights(shard.world))
        check_memory(setup, needs_of(setup, footprint, work, is_trained=is_trained), note)
    return load_base(setup.model, path, text, shard)


def check_packages(setup: Setup) -> None:
    """Refuse to play without a package that the team or its engine needs, before minutes go into a base.

    Where other processes play, they have packages of their own, and their errors say what lacks.

    Raises:
        MissingPackage: names the extra.
    """
    if setup.cluster.workers or setup.cluster.engines:
        return
    if setup.engine.name == "vllm" and find_spec("vllm") is None:
        raise MissingPackage("engine=vllm needs the package vllm, which is not installed: pip install 'mas[vllm]'")
    if any(server.sandbox is None for server in setup.team.tools.values()):
        check_sdk("tools of MCP servers need")
    for role, spec in setup.team.roles.items():
        if spec.a2a is not None:
            check_a2a(f"role {role!r}, which an agent elsewhere plays (a2a), needs")


def base_path(setup: Setup, note: Note, home: Scenario | None = None) -> str:
    """The directory or hub id of the base; a built-in one is made now, unless it is in the cache."""
    if setup.model.path == SMOLLM2:
        return str(smollm2(note))
    if setup.model.path != TINY:
        return setup.model.path

    home = setup.scenario if home is None else home
    return str(tiny_base(home, setup.model.tiny, progress_in(note, home.name)))


def progress_in(note: Note, name: str) -> Progress:
    """Tells the steps of a scenario's tiny base, and how long the others take at the speed so far."""
    began = time.monotonic()

    def tell(step: int, total: int, loss: float) -> None:
        left = clock_time((time.monotonic() - began) / step * (total - step))
        note(f"tiny base for {name}: step {step}/{total}, loss {loss:.3f}  left {left}")

    return tell


def tiny_base(scenario: Scenario, options: TinyOptions, progress: Progress | None = None) -> Path:
    """The directory of the tiny base for a scenario, made now unless it is cached.

    Raises:
        ModelError: the cache cannot be written.
    """
    key = digest(scenario.fingerprint(), options.model_dump_json(), ALPHABET, _RECIPE, torch.__version__)
    target = cache_directory() / "bases" / f"{scenario.name}-{key}"
    if (target / "config.json").is_file():
        return target
    try:
        with making_directory(target) as made:
            _make(scenario, options, made, progress)
    except (OSError, SafetensorError) as error:
        raise ModelError(
            f"the tiny base of {scenario.name} cannot be written to {target.parent}: "
            f"{getattr(error, 'strerror', None) or error}. Make room and check the permissions, or set MAS_CACHE to "
            "another directory"
        ) from error
    return target


def _make(scenario: Scenario, options: TinyOptions, target: Path, progress: Progress | None) -> None:
    tokenizer = tiny_tokenizer()
    model = tiny_model(options)
    optimiser = torch.optim.Adam(model.parameters(), lr=options.lr)
    total = options.steps + options.habit_steps
    streams = [scenario.demonstrations(options.seed, expert=expert) for expert in (True, False)]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for step in range(total):
            loss = _loss(model, tokenizer.encode, streams[step >= options.steps], options.batch)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            if progress is not None and ((step + 1) % 50 == 0 or step + 1 == total):
                progress(step + 1, total, loss.item())
    finally:
        torch.set_num_threads(threads)
    disable_progress_bar()  # type: ignore[no-untyped-call]
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)


def _loss(
    model: torch.nn.Module,
    encode: Callable[[str], list[int]],
    demonstrations: Iterator[tuple[str, str]],
    batch: int,
) -> torch.Tensor:
    """Mean cross-entropy over completion tokens."""
    pairs = [(encode(prompt), encode(answer)) for prompt, answer in itertools.islice(demonstrations, batch)]
    padded = pad_left([[*prompt, *answer[:-1]] for prompt, answer in pairs], torch.device("cpu"))
    longest = max(len(answer) for _, answer in pairs)
    logits_NLV = model(
        input_ids=padded.ids_NT,
        attention_mask=padded.mask_NT,
        position_ids=padded.positions_NT,
        logits_to_keep=longest,
        use_cache=False,
    ).logits
    targets_NL = right_aligned([answer for _, answer in pairs], logits_NLV.device).long()
    mask_NL = right_aligned([[1.0] * len(answer) for _, answer in pairs], logits_NLV.device).bool()
    return torch.nn.functional.cross_entropy(logits_NLV[mask_NL], targets_NL[mask_NL])
