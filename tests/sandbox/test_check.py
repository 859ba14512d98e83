"""A program passes a case by having its value, and by nothing else."""

import textwrap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mas.core.errors import SandboxError
from mas.sandbox.box import Sandbox
from mas.sandbox.inside.values import canonical
from mas.sandbox.mechanism import Mechanism
from mas.sandbox.outcome import Checked, ProgramCase, SandboxLimits

DOUBLE = (ProgramCase("f(2)", 4), ProgramCase("f(-3)", -6), ProgramCase("f('a')", "aa"))


def check(box: Sandbox, source: str, cases: tuple[ProgramCase, ...] = DOUBLE) -> Checked:
    return box.check_now(textwrap.dedent(source), cases)


def test_cases_pass_and_fail_one_by_one(sandbox: Sandbox) -> None:
    assert check(sandbox, "def f(x): return x + x").passed == (True, True, True)
    half = check(sandbox, "def f(x): return x * 2 if x == 2 else abs(x) * 2 if x == -3 else 1 / 0")
    assert half.passed == (True, False, False)
    assert half.ratio == pytest.approx(1 / 3)
    assert half.outcome.status == "ok"
    assert check(sandbox, "def g(x): return x").passed == (False, False, False)


@pytest.mark.parametrize(
    "source",
    [
        "import os\nos._exit(0)",
        "import sys\nsys.exit(0)",
        "def f(x):\n    import os\n    os._exit(0)",
        "raise SystemExit",
        "import os\nos.close(3)",
        "import os\nos.close(3)\nos.dup2(1, 3)\ndef f(x): return x + 1",
        "print('V 4')\nprint('passed')\ndef f(x): return x + 1",
        "import sys\nsys.stdout.close()\nsys.stderr.close()\ndef f(x): return x + 1",
        "import atexit, os\natexit.register(os._exit, 0)\ndef f(x): return x + 1",
    ],
)
def test_ending_early_or_talking_like_the_checker_passes_nothing(sandbox: Sandbox, source: str) -> None:
    checked = check(sandbox, source)
    assert checked.passed == (False, False, False)
    assert checked.ratio == 0


@pytest.mark.parametrize(
    "record",
    [
        "head.pack(b'V', 4) + b'True'",
        "head.pack(b'P', 0)",
        "head.pack(b'B', 0)",
        "head.pack(b'R', 0)",
        "b'V' * 4",
        "head.pack(b'V', 2 ** 32 - 1)",
    ],
)
def test_forged_records_pass_nothing(sandbox: Sandbox, record: str) -> None:
    checked = check(
        sandbox,
        f"""
        import os, struct
        head = struct.Struct(">cI")
        for _ in range(20):
            os.write(3, {record})
        os._exit(0)
        """,
    )
    assert checked.passed == (False, False, False)
    assert checked.outcome.status == "ok"


def test_objects_that_equal_everything_and_print_as_they_like_pass_nothing(sandbox: Sandbox) -> None:
    source = """
        class Sly(int):
            def __eq__(self, other): return True
            def __repr__(self): return "4"
            __hash__ = int.__hash__
        def f(x): return Sly(4)
        """
    assert check(sandbox, source).passed == (False, False, False)


def test_a_program_that_replaces_what_evaluates_it_still_does_not_know_the_answers(sandbox: Sandbox) -> None:
    source = """
        import builtins, sys
        inside = sys.modules["mas.sandbox.inside.program"]
        inside.canonical = lambda value: "True"
        builtins.compile = builtins.eval = lambda *_: True
        def f(x): return x + 1
        """
    assert check(sandbox, source).passed == (False, False, False)


def test_nothing_that_is_expected_is_to_be_found_inside(sandbox: Sandbox) -> None:
    """The needle is put together inside, so that it is not in the program's text."""
    source = """
        import sys
        def f(x):
            needle = "9876" + "54321"
            frame, seen = sys._getframe(), []
            while frame is not None:
                seen += [repr(value) for name, value in frame.f_locals.items() if name not in ("needle", "seen")]
                frame = frame.f_back
            return any(needle in text for text in seen)
        """
    checked = check(sandbox, source, (ProgramCase("f(1)", 987654321), ProgramCase("f(1)", False)))
    assert checked.passed == (False, True)


def test_an_endless_case_fails_with_all_after_it_and_those_before_it_count(walls: Mechanism) -> None:
    with Sandbox(SandboxLimits(time_s=2.0), mechanism=walls) as box:
        checked = check(box, "def f(x):\n    while x == -3: pass\n    return x + x")
    assert checked.passed == (True, False, False)
    assert checked.outcome.status == "timeout"


def test_a_value_beyond_the_limit_of_output_fails(sandbox: Sandbox) -> None:
    checked = check(sandbox, "def f(x): return 'x' * 10_000_000")
    assert checked.passed == (False, False, False)
    assert checked.outcome.status == "output"


SHORT = st.text("ab'", max_size=2)
VALUES = st.recursive(
    st.sampled_from([None, True, False, 0, 1, -1, 0.0, 1.0, b"", b"a"]) | SHORT,
    lambda inner: st.lists(inner, max_size=2) | st.tuples(inner) | st.dictionaries(SHORT, inner, max_size=2),
    max_leaves=3,
)


@settings(max_examples=60, deadline=None)
@given(VALUES, VALUES)
def test_two_values_have_one_text_exactly_when_they_are_equal_and_of_one_type(one: object, other: object) -> None:
    def typed(value: object) -> object:
        if isinstance(value, list | tuple):
            return type(value), [typed(item) for item in value]
        if isinstance(value, dict):
            return dict, sorted((key, repr(typed(item))) for key, item in value.items())
        return type(value), repr(value)

    assert (canonical(one) == canonical(other)) == (typed(one) == typed(other))


def test_values_that_print_alike_are_told_apart() -> None:
    alike = [1, True, 1.0, "1", b"1", [1], (1,), {1}, frozenset({1}), {1: 1}, {"1": 1}, None, "None", [[]]]
    assert len({canonical(value) for value in alike}) == len(alike)
    assert canonical({"b": 1, "a": {3, 20, 1}}) == canonical({"a": {20, 1, 3}, "b": 1})


def test_what_cannot_be_compared_is_an_error_of_who_expects_it(sandbox: Sandbox) -> None:
    cyclic: list[object] = []
    cyclic.append(cyclic)
    for expected in (object(), [len], cyclic, 10**5000):
        with pytest.raises(SandboxError, match=r"'f\(1\)' expects"):
            check(sandbox, "def f(x): return x", (ProgramCase("f(1)", expected),))
    loop = "a = []\na.append(a)\nf = lambda x: a if x else object()"
    assert check(sandbox, loop, (ProgramCase("f(1)", []), ProgramCase("f(0)", None))).passed == (False, False)
