"""The golden record `tests/data/golden.json`: read, compared and written.

`python tests/golden/record.py` says where the numbers of today differ from the record at all, in the last bit, too;
with `--write` it writes the record anew, and with names behind it these presets alone. On the machine that wrote it, a
change that only moves code leaves the file as it is; numbers of float32 may end otherwise on another processor, which
the tests allow for.
"""

import argparse
import json
import math
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "tests" / "data" / "golden.json"
HOW_TO_WRITE = (
    "If the numbers are meant to change, write the record anew with `python tests/golden/record.py --write`, and give "
    "the reason in CHANGELOG.md."
)
Found = Mapping[str, Any]


def read() -> dict[str, Any]:
    """The record: `presets` and `trainings`, by name."""
    found: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    return found


def differences(found: Found, wanted: Found, tolerances: Mapping[str, float]) -> list[str]:
    """Where found differs from wanted, a line each, which names the step, the kind of number and whose it is.

    Args:
        found: step -> kind -> whose -> numbers, or texts. tolerances: of each kind, in units of the largest number of
            the list; kinds that are left out must be equal.
    """
    lines = []
    for step, kind, whose in dict.fromkeys((*_keys(wanted), *_keys(found))):
        now, then = (one.get(step, {}).get(kind, {}).get(whose) for one in (found, wanted))
        if cause := _difference(now, then, tolerances.get(kind, 0.0)):
            lines.append(f"{step}, {kind} of {whose}: {cause}")
    return lines


def _keys(found: Found) -> Iterator[tuple[str, str, str]]:
    return ((step, kind, whose) for step, kinds in found.items() for kind, of in kinds.items() for whose in of)


def _difference(now: Sequence[Any] | None, then: Sequence[Any] | None, tolerance: float) -> str:
    if now is None or then is None:
        return "not there any more" if now is None else "not in the record"
    if len(now) != len(then):
        return f"{len(now)} of them, the record has {len(then)}"
    numbers = [abs(one) for one in then if isinstance(one, float) and math.isfinite(one)]
    allowed = tolerance * max(numbers, default=0.0)
    wrong = [place for place, (a, b) in enumerate(zip(now, then, strict=True)) if not _is_near(a, b, allowed)]
    if not wrong:
        return ""
    first = wrong[0]
    return f"{len(wrong)} of {len(then)} differ; number {first} is {now[first]!r}, the record has {then[first]!r}"


def _is_near(now: Any, then: Any, allowed: float) -> bool:
    if now == then:
        return True
    return isinstance(now, float) and isinstance(then, float) and abs(now - then) <= allowed


def rounded(found: Any) -> Any:
    """As it stands in the record: float64 in full, and of what was computed in float32 the digits that it has."""
    if not isinstance(found, Mapping):
        return [float(f"{one:.9g}") if isinstance(one, float) else one for one in found]
    return {name: own if name == "advantages" else rounded(own) for name, own in found.items()}


def message(name: str, lines: Sequence[str]) -> str:
    """What a test says of a difference."""
    return "\n".join([*(f"{name}, {line}" for line in lines[:12]), f"{len(lines)} differences. {HOW_TO_WRITE}"])


def text(record: Found) -> str:
    """The record with a line for each list."""
    return f"{_text(record, 0)}\n"


def _text(value: Any, depth: int) -> str:
    if not isinstance(value, Mapping):
        return json.dumps(value, separators=(",", ":"))
    inner = ",\n".join(f"{' ' * depth}{json.dumps(name)}: {_text(own, depth + 1)}" for name, own in value.items())
    return f"{{\n{inner}\n{' ' * max(depth - 1, 0)}}}"


def compute(chosen: Sequence[str] = ()) -> dict[str, Any]:
    """The numbers of today; of some presets alone, with those of the record for all else."""
    from golden import presets, trainings

    from mas.config.load import presets as names

    base = presets.base_of()
    if chosen:
        known = read()
        known["presets"] |= {name: rounded(presets.found_of(name, base)) for name in chosen}
        return known | {"presets": dict(sorted(known["presets"].items()))}
    return {
        "presets": {name: rounded(presets.found_of(name, base)) for name in names("algorithm")},
        "trainings": {name: rounded(trainings.train(name, trainings.base_of(name))[0]) for name in trainings.SCENARIOS},
    }


def main() -> int:
    """0: all is as in the record, or was written; 1: it is not."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="write the record anew")
    parser.add_argument("presets", nargs="*", help="of these alone")
    with tempfile.TemporaryDirectory() as cache:
        os.environ |= {"MAS_CACHE": cache, "HF_HUB_OFFLINE": "1"}
        sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "training")]
        import torch

        torch.set_num_threads(1)
        chosen = parser.parse_args()
        found = compute(chosen.presets)
    if chosen.write:
        RECORD.write_text(text(found), encoding="utf-8")
        print(f"wrote {RECORD.relative_to(ROOT)}: {RECORD.stat().st_size} bytes")
        return 0
    changed = [
        f"{name}, {line}"
        for part, own in read().items()
        for name, wanted in own.items()
        for line in differences(found[part].get(name, {}), wanted, {})
    ]
    print("\n".join(changed) or "all numbers are those of the record")
    return int(bool(changed))


if __name__ == "__main__":
    raise SystemExit(main())
