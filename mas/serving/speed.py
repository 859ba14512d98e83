"""How fast a base decodes on this machine: a second or two of measuring before hours of training."""

import time
from dataclasses import dataclass, replace

import torch

from mas.core.engine import Request, Sampling
from mas.serving.decode import Batch, DecodeJob
from mas.serving.grammar import Grammars
from mas.serving.model import BaseModel

_PROMPT, _NEW = 16, 5
_READ, _DRAWN, _SHORT = 4, 32, 2
"""Rows at most by which reading is measured, and drawing, which grows with its rows and begins with shorter prompts."""
_LONGEST_S = 2.0
"""What each of the two may take, by what the one before took; a slower model is measured with fewer rows."""


@dataclass(frozen=True, slots=True)
class Speed:
    """Tokens a second with `rows` rows at once: read in prompts, and drawn.

    `fixed`: share of a decoding pass's time that is the same with any number of rows, as the weights are read once.
    """

    prompt_tps: float
    new_tps: float
    rows: int
    fixed: float = 0.0

    def new_tps_with(self, rows: int) -> float:
        """New tokens a second with so many rows at once: a pass takes a + b x rows seconds."""
        times = rows / self.rows
        return self.new_tps * times / (self.fixed + (1 - self.fixed) * times)

    def text(self) -> str:
        """For people."""
        rows = "1 row" if self.rows == 1 else f"{self.rows} rows at once"
        return f"{self.prompt_tps:.0f} prompt tokens/s, {self.new_tps:.0f} new tokens/s with {rows}"


def measure_speed(base: BaseModel, rows: int) -> Speed:
    """Read short prompts of arbitrary ids with the bare base and draw a few tokens, by the embedded engine's own code.

    Args:
        rows: as many as would be decoded together; 32 at most are measured, and fewer of a slow model.

    Returns:
        Its `rows` are those that were drawn at once; `fixed` follows from these and from one row alone.
    """
    torch.set_num_threads(base.options.threads)
    _measured(base, 1)  # the first pass of all prepares kernels
    one, wanted = _measured(base, 1), max(min(rows, _DRAWN, base.options.max_batch), 1)
    affordable = _LONGEST_S / (_PROMPT / one.prompt_tps + _NEW / one.new_tps)
    read = max(min(wanted, _READ, int(affordable)), 1)
    found = one
    if read > 1:  # the first pass of a shape prepares kernels again
        found = max(_measured(base, read), _measured(base, read), key=lambda speed: speed.prompt_tps)
    drawn = wanted if read * _PROMPT / found.prompt_tps <= _LONGEST_S else min(wanted, _READ)
    if drawn > read:
        found = replace(_measured(base, drawn, _SHORT), prompt_tps=found.prompt_tps)
    return replace(found, fixed=_fixed(one, found))


def _fixed(one: Speed, many: Speed) -> float:
    """The share of a pass with `many` rows that a row less does not shorten; 0 where there is but one row."""
    if many.rows == 1:
        return 0.0
    pass_s = many.rows / many.new_tps
    row_s = max(pass_s - 1 / one.new_tps, 0.0) / (many.rows - 1)
    return max(1 - row_s * many.rows / pass_s, 0.0)


def _measured(base: BaseModel, rows: int, prompt: int = _PROMPT) -> Speed:
    length = max(min(prompt, base.limits.context - _NEW), 1)
    sampling = Sampling(temperature=1.0, max_tokens=_NEW)
    jobs = []
    for row in range(rows):
        ids = tuple((7 * place + row) % base.limits.vocabulary for place in range(1, 1 + length))
        jobs.append(DecodeJob(Request(prompt_ids=ids, sampling=sampling, seeds=(row,)), row, None, None))
    batch = Batch(base, Grammars(base.text))
    began = time.perf_counter()
    batch.admit(jobs)  # reads the prompts and draws the first tokens
    admitted = time.perf_counter()
    while batch.jobs:
        batch.step()
    ended = time.perf_counter()
    drawn = rows * (_NEW - 1)
    return Speed(rows * length / max(admitted - began, 1e-9), drawn / max(ended - admitted, 1e-9), rows)
