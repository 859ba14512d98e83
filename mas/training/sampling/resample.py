"""Sample more than is trained on, and keep the cleanest successes: GRPO-RoC, resampling on correct.

Source: rStar2-Agent, arXiv 2508.20722.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class Resampled:
    """Indices into the group: successes with the lowest penalty first, failures in their order."""

    successes: tuple[int, ...]
    failures: tuple[int, ...]

    @property
    def kept(self) -> tuple[int, ...]:
        """All, in the order of the group."""
        return tuple(sorted(self.successes + self.failures))


def largest_remainder(sizes: Sequence[int], keep: int) -> list[int]:
    """How many to keep of each class, in proportion to the sizes; they add up to `keep`, and none is above its size.

    Each gets the whole part of size x keep / sum; what is left goes to the largest remainders, of equals to the first.
    Rounding each share instead, as published, may add up to one more or one less.

    Raises:
        ValueError: a size is negative, or `keep` is below 0 or above the sum of the sizes.
    """
    whole = sum(sizes)
    if any(size < 0 for size in sizes) or not 0 <= keep <= whole:
        raise ValueError(f"cannot keep {keep} of classes of {list(sizes)}: 0 to {whole} are possible")
    if not whole:
        return [0] * len(sizes)
    parts = [divmod(size * keep, whole) for size in sizes]
    counts = [part for part, _ in parts]
    by_remainder = sorted(range(len(parts)), key=lambda number: -parts[number][1])
    for number in by_remainder[: keep - sum(counts)]:
        counts[number] += 1
    return counts


def resample_on_correct(
    successes: Sequence[bool],
    penalties: Sequence[float],
    *,
    keep: int,
    least: int = 0,
    seed: int = 0,
) -> Resampled:
    """Keep `keep` samples of one group, successes and failures in proportion.

    Successes are those with the lowest penalty, of equals the first. Failures are drawn uniformly, whatever their
    penalty, so that their diversity stays. A class below `least` is raised to it as far as it has samples and the other
    can spare them (2 for 16 of 32 in the paper).

    Raises:
        ValueError: the two lengths differ, `keep` is not from 0 to the size of the group, or 2 `least` exceeds `keep`.
    """
    if len(successes) != len(penalties):
        raise ValueError(f"{len(successes)} samples but {len(penalties)} penalties: give one per sample")
    if least < 0 or 2 * least > keep:
        raise ValueError(f"at least {least} of each class do not fit in {keep}: 0 to {max(keep, 0) // 2} are possible")
    good = [number for number, is_success in enumerate(successes) if is_success]
    bad = [number for number, is_success in enumerate(successes) if not is_success]
    share, _ = largest_remainder([len(good), len(bad)], keep)
    of_good = min(max(share, min(least, len(good))), keep - min(least, len(bad)))
    of_bad = keep - of_good
    chosen = tuple(sorted(Random(seed).sample(bad, of_bad)))
    return Resampled(tuple(sorted(good, key=lambda number: penalties[number])[:of_good]), chosen)


def transcript_penalty(*, calls: int, errors: int, has_form: bool) -> float:
    """How unclean a transcript is, 0 to 2: the share of tool calls that failed, plus 1 where an answer lacks its form.

    The share is 0.5 where no tool was called. The published penalty of further answers is left out.

    Raises:
        ValueError: a number is negative, or more calls failed than were made.
    """
    if not 0 <= errors <= calls:
        raise ValueError(f"no transcript has {errors} errors in {calls} calls")
    return (errors / calls if calls else 0.5) + float(not has_form)
