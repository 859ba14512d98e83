"""The programs in `examples/gateway` as they are: what they call is recorded, and the real model learns by one."""

import asyncio
import json
import re
import runpy
import subprocess
import sys
from pathlib import Path
from statistics import fmean

import pytest
from open_gateway import open_gateway
from trained_program import train_program

from mas.endpoint import running
from mas.gateway.serving import GatewayLimits

FOLDER = Path(__file__).parents[2] / "examples" / "gateway"
ONE_ROLE = "solver_agent"
EXAMPLES = sorted({path.stem for path in FOLDER.glob("*.py")} - {ONE_ROLE})


def knowing(prompt: str, adapter: str | None, seed: int) -> str:
    """A finder and a reader that know; the finder errs now and then."""
    if adapter == "finder":
        job = re.search(r"name of the (\w+)", prompt)
        assert job is not None
        found = re.search(rf"(\w+) is a {job[1]}", prompt)
        assert found is not None
        return found[1] if seed % 2 else "Nobody"
    asked = re.search(r"does (\w+) have\?", prompt)
    assert asked is not None
    found = re.search(rf"{asked[1]} has ([0-9])", prompt)
    return found[1] if found else "none"


@pytest.mark.parametrize("name", EXAMPLES)
async def test_an_example_plays_all_episodes(name: str) -> None:
    row = {
        "question": "Carla is a pilot, Ben is a baker and Anna is a doctor. Carla has 8 coins, Ben has 1 and Anna has "
        "3. How many coins does the baker have?",
        "answer": 1,
    }
    main = runpy.run_path(str(FOLDER / f"{name}.py"))["main"]
    limits = GatewayLimits(idle_s=30, lease_s=0.5)
    async with (
        open_gateway(answer=knowing, candidates=12, limits=limits, rows={"train": [row], "eval": [row]}) as gate,
        running(gate.app) as url,
    ):
        program = asyncio.create_task(asyncio.to_thread(main, url))
        async with asyncio.timeout(60):
            episodes = await gate.play(0)
            await gate.queue.close("done")
            await program
    assert [[turn.role for turn in episode.turns] for episode in episodes] == [["finder", "reader"]] * 12
    right = [episode.turns[0].text == "Ben" for episode in episodes]
    assert [episode.success for episode in episodes] == right
    assert 0 < sum(right) < 12


@pytest.mark.slow
@pytest.mark.nightly(shard=False)  # four minutes
@pytest.mark.timeout(3600)
def test_a_real_model_learns_to_answer_in_a_form(smollm: Path, tmp_path: Path) -> None:
    tasks = tmp_path / "lookups.jsonl"
    tasks.write_bytes(subprocess.check_output([sys.executable, FOLDER.parent / "lookups.py"]))
    options = [
        "model=smollm2",
        "model.threads=2",
        f"scenario.options.path={tasks}",
        "scenario.options.roles=[solver]",
        "scenario.options.max_tokens=6",
        "train.steps=20",
        "train.tasks_per_step=8",
        "train.eval_tasks=32",
        "train.eval_every=0",
    ]
    program = [sys.executable, str(FOLDER / f"{ONE_ROLE}.py")]
    train_program(options, tmp_path / "run", lambda url: subprocess.check_call([*program, url]))
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    greedy = [line["eval"]["greedy"]["success"] for line in lines if "greedy" in line.get("eval", {})]
    reward = [line["reward"] for line in lines if "adapters" in line]
    assert greedy[0] < 0.25
    assert greedy[-1] > 0.5
    assert fmean(reward[-5:]) >= 2 * fmean(reward[:3])
