"""Run directories with many turns, for tests: made of a few lines that are written again and again."""

from pathlib import Path

import msgspec

from mas.core.records import Line, Scene
from mas.observe.turn_records import CandidateTurn, EpisodeHead, GroupMark, RecordedDecision, step_file

TOKENS = 40


def plain_run(path: Path) -> Path:
    """An empty run directory as the studio finds it."""
    path.mkdir(parents=True)
    (path / "config.yaml").write_text("run_dir: here\n")
    return path


def candidate(index: int, text: str = "a few words ", **changes: object) -> CandidateTurn:
    """One candidate of `TOKENS` tokens; the first is chosen."""
    plain = CandidateTurn(
        index=index, chosen=index == 0, text=text * (TOKENS // 3), finish="stop", reward=None, returned=index / 4,
        advantage=index / 2 - 0.75, terms={"team.goal": index / 4}, adapter="solver@3",
        tokens=("a", " few", " words ")[:3] * (TOKENS // 3), logprobs=(-0.01, -0.7, -2.5) * (TOKENS // 3),
    )  # fmt: skip
    return msgspec.structs.replace(plain, **changes)


def decision(
    turn: int, candidates: int = 4, *, agent: str = "solver", prompt: str = "What now? " * 80
) -> RecordedDecision:
    """One decision of a role `solver`."""
    group = GroupMark(number=turn, kind="decision", size=candidates, is_flat=turn == 1)
    flat = {"returned": 0.5, "advantage": 0.0} if turn == 1 else {}
    own = tuple(candidate(number, **flat) for number in range(candidates))
    return RecordedDecision(turn=turn, visit=0, agent=agent, role="solver", group=group, prompt=prompt, candidates=own)


def line(name: str, record: object) -> bytes:
    """A line of a file of turns."""
    return msgspec.json.encode({name: record}) + b"\n"


def episode_lines(step: int, task: str, decisions: int, candidates: int = 4, *, success: bool = True) -> bytes:
    """An episode as a file of turns has it."""
    head = EpisodeHead(
        step=step, id=task, task=task, success=success, rewards={"goal": float(success)}, roles=("solver",),
        decisions=decisions, turns=decisions * candidates, groups=decisions, flat=int(decisions > 1),
    )  # fmt: skip
    scenes = [Scene(turn=turn, event=f"turn {turn}" if turn >= 0 else "", world="#.A") for turn in range(-1, decisions)]
    more = msgspec.json.encode({"scenes": scenes, "lines": []}) + b"\n"
    return line("episode", head) + more + b"".join(
        line("decision", decision(turn, candidates)) for turn in range(decisions)
    )  # fmt: skip


def large_run(path: Path, *, steps: int = 50, episodes: int = 100, decisions: int = 5) -> Path:
    """So many recorded steps, with four candidates per decision: 100,000 turns as it is called."""
    run = plain_run(path)
    (run / "turns").mkdir()
    body = episode_lines(1, "task-AAAAA", decisions)
    for step in range(1, steps + 1):
        own = body.replace(b'"step":1,', b'"step":%d,' % step)
        named = (own.replace(b"task-AAAAA", b"task-%05d" % number) for number in range(episodes))
        step_file(run, step).write_bytes(b"".join(named))
    return run


def large_samples(path: Path, *, conversations: int = 5000, turns: int = 20) -> Path:
    """As many turns as text alone, in one file."""
    run = plain_run(path)
    lines = [
        Line(turn=turn, agent="solver", prompt="What now? " * 80, text="a few words " * 13) for turn in range(turns)
    ]
    sample = {
        "step": 1, "source": "greedy", "task": "task-AAAAA", "success": True, "status": "done", "cause": None,
        "rewards": {"goal": 1.0}, "lines": lines, "scenes": [], "attempts": [],
    }  # fmt: skip
    body = msgspec.json.encode(sample) + b"\n"
    named = (body.replace(b"task-AAAAA", b"task-%05d" % number) for number in range(conversations))
    (run / "samples.jsonl").write_bytes(b"".join(named))
    return run
