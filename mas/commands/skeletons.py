"""What `mas new` writes. In paths, texts and commands NAME and CLASS stand for the name and the class of it."""

from collections.abc import Mapping
from typing import NamedTuple


class Skeleton(NamedTuple):
    """The files of one kind, path -> text, and the commands that train and check what is in them."""

    files: Mapping[str, str]
    train: str
    check: str


_SCENARIO = '''"""CLASS: a task for a team, of your own. docs/scenarios.md has all methods.

Change first: `reset`, what is drawn; then `observe`, what each member sees; then `answer` and `step`, what is right.
"""

from random import Random


class CLASS:
    """The planner sees one number, the executor another: which is the larger?"""

    # Arguments are options: mas train scenario=NAME.py:CLASS scenario.options.most=5
    def __init__(self, most: int = 9) -> None:
        self.most = most

    # Draw a task, from nothing but `random`: equal seeds are equal tasks.
    def reset(self, random: Random) -> None:
        self.first, self.second = random.randint(0, self.most), random.randint(0, self.most)

    # What a member sees, by its view. Views that are not listed here (`solo`, one agent alone) see all.
    def observe(self, view: str) -> str:
        seen = {"planner": f"{self.first}", "executor": f"{self.second}"}
        return seen.get(view, f"{self.first} {self.second}")

    # All answers that are possible. Delete this method where they cannot be listed.
    def legal(self) -> list[str]:
        return [str(number) for number in range(self.most + 1)]

    # The right answer: the tiny base is taught by it, and `mas scenarios NAME.py:CLASS --measure` plays it.
    def answer(self) -> str:
        return str(max(self.first, self.second))

    # What the team is paid for its answer; 1 is a solved task.
    def step(self, action: str) -> float:
        return float(action == self.answer())
'''

_SCENARIO_TEST = '''"""The contract of every scenario, and the rules of this one. Run: pytest"""

from pathlib import Path
from random import Random

from NAME import CLASS

from mas.config.options import ScenarioOptions
from mas.core.scenario import Scenario
from mas.scenarios import build_scenario
from mas.testing.scenario import ScenarioContract

FILE = Path(__file__).parent / "NAME.py"


class TestContract(ScenarioContract):
    def make_scenario(self) -> Scenario:
        return build_scenario(ScenarioOptions(name=f"{FILE}:CLASS"))


# Your own rules, one test each.
def test_only_the_right_answer_is_paid() -> None:
    task = CLASS()
    task.reset(Random(0))
    wrong = next(answer for answer in task.legal() if answer != task.answer())
    assert (task.step(task.answer()), task.step(wrong)) == (1.0, 0.0)
'''

SCENARIO = Skeleton(
    {"NAME.py": _SCENARIO, "test_NAME.py": _SCENARIO_TEST},
    "mas train scenario=NAME.py:CLASS train.steps=300 run_dir=runs/NAME",
    "mas check NAME.py",
)

_ROLE = '''"""CLASS: a role of your own: what its agent is asked, and what its answer means. docs/teams.md has all keys.

Change first: `duty`; then `parse`, which answers count.
"""

from typing import ClassVar

from mas.core.messages import Failure, Payload
from mas.roles import PromptedRole


class CLASS(PromptedRole):
    """Says one letter, in any case."""

    # What models that chat are told, where the team's file has no `instructions`.
    duty: ClassVar[str] = "Say one letter that tells your partner what you see."

    # What an answer means. What cannot be read is a Failure, which is counted: never raise.
    def parse(self, text: str) -> Payload:
        said = text.strip().lower()
        if len(said) != 1 or not said.isalpha():
            return Failure(text=text, cause="not one letter")
        return super().parse(said)
'''

_ROLE_TEAM = """# A team with the role of NAME.py, for the scenario relay: docs/teams.md has all keys.
# Change first: which roles play, then `edges`, who speaks to whom. Give commands in this directory.
name: NAME
roles:
  planner:
    type: NAME.py:CLASS
    instructions: You see the wanted key, A, B, C or D. Send it as one small letter.
    template: "P{goal}>"
    max_tokens: 1
  executor:
    type: executor
    instructions: You see the digits of A, B, C, D and your partner's letter. Answer with the digit of that letter.
    template: "E{table};{from.planner}>"
    choices: ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
    max_tokens: 1
edges:
  - start -> planner
  - planner -> executor
  - executor -> done
output: executor
"""

_ROLE_TEST = '''"""The contract of every role, and what this one reads. Run: pytest"""

from collections.abc import Iterable

from NAME import CLASS

from mas.core.role import Role, RoleSpec
from mas.testing.role import RoleContract


class TestContract(RoleContract):
    def make_role(self) -> Role:
        return CLASS("planner", RoleSpec(type="NAME.py:CLASS"))

    # Answers that count, and answers that do not.
    def legal(self) -> Iterable[str]:
        return ("a", "D")

    def illegal(self) -> Iterable[str]:
        return ("", "ab", "7")
'''

ROLE = Skeleton(
    {"NAME.py": _ROLE, "NAME.yaml": _ROLE_TEAM, "test_NAME.py": _ROLE_TEST},
    "mas train scenario=relay algorithm.team=NAME.yaml train.steps=20 run_dir=runs/NAME",
    "mas check NAME.py NAME.yaml scenario=relay",
)

_ALGORITHM = '''"""CLASS: an algorithm of your own. docs/own_algorithm.md has all that it may have.

Change first: `advantages`, which says how much better each row is than those that it is compared with.
"""

from collections.abc import Hashable, Sequence
from statistics import fmean

from mas.algorithms import Algorithm, Options, Recipe, Row


class CLASSOptions(Options):
    """`bound`: no advantage is further from 0. Set it by algorithm.options.bound=1.5"""

    bound: float = 2.0


def advantages(rows: Sequence[Row], options: CLASSOptions) -> list[float]:
    """A = R - the mean R of the row's group, between -bound and bound: one finite number per row."""
    groups: dict[Hashable, list[float]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row.reward)
    return [max(-options.bound, min(options.bound, row.reward - fmean(groups[row.group]))) for row in rows]


algorithm = Algorithm(
    recipe=Recipe(title="CLASS", does="Each episode is compared with the mean of its group."),
    # What it sets of algorithm.*: whole episodes are compared. `mas config algorithm=NAME.py` prints all keys.
    parts={"sampler": {"mode": "parallel"}, "loss": {"entropy": 0.01}},
    options=CLASSOptions,
    advantages=advantages,
)
'''

_ALGORITHM_TEST = '''"""The numbers that the algorithm must give, and that its parts fit together. Run: pytest"""

from pathlib import Path

from NAME import CLASSOptions, advantages

import mas
from mas.algorithms import Row

FILE = Path(__file__).parent / "NAME.py"


def row(reward: float, group: str) -> Row:
    return Row(turns=(), reward=reward, group=group)


def test_rows_are_compared_within_their_group() -> None:
    rows = [row(1.0, "a"), row(0.0, "a"), row(5.0, "b")]
    # a: the mean is 0.5; b: a row alone has nothing to be compared with
    assert advantages(rows, CLASSOptions()) == [0.5, -0.5, 0.0]


def test_no_advantage_is_beyond_the_bound() -> None:
    rows = [row(9.0, "a"), row(0.0, "a")]
    assert advantages(rows, CLASSOptions(bound=1.0)) == [1.0, -1.0]


def test_its_parts_fit_together() -> None:
    config = mas.load_config(["scenario=relay", f"algorithm={FILE}"])
    assert config.algorithm.name == "NAME"
'''

ALGORITHM = Skeleton(
    {"NAME.py": _ALGORITHM, "test_NAME.py": _ALGORITHM_TEST},
    "mas train scenario=relay algorithm=NAME.py train.steps=20 run_dir=runs/NAME",
    "mas check NAME.py",
)

_TEAM = """# A team of your own, for the scenario plan_path: docs/teams.md has all keys.
# Change first: `instructions`, then `roles` and `edges`, who is in it and who speaks to whom.
# `mas graph NAME.yaml` checks and draws it.
name: NAME
roles:
  planner:
    type: planner
    instructions: You alone know the goal. Tell the walker its row and column as two digits.
    # The compact prompt, for the tiny base: {goal} is a field of the view.
    template: "P{goal}>"
    choices: ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
    max_tokens: 2
  walker:
    type: executor
    view: executor
    instructions: You know your own cell. The planner sends the goal. Make one move.
    template: "E{cell}{last}{from.planner};>"
    choices: [U, D, L, R]
    max_tokens: 1
edges:
  - start -> planner
  - planner -> walker
  - walker -> done
output: walker
"""

_TEAM_TEST = '''"""The team is well formed, and plays its scenario. Run: pytest"""

import asyncio
from pathlib import Path

from mas.config.options import ScenarioOptions
from mas.graph import compile_team, load_team
from mas.graph.load import find_team
from mas.roles import build_roles
from mas.scenarios import build_scenario
from mas.testing.scenario import play_scripted

FILE = Path(__file__).parent / "NAME.yaml"


def test_its_graph_is_well_formed_and_the_walker_acts() -> None:
    team = load_team(FILE)
    compile_team(team, build_roles(team))
    assert team.output == "walker"


def test_it_plays_the_scenario_to_the_end() -> None:
    scenario = build_scenario(ScenarioOptions(name="plan_path"))
    steps = asyncio.run(play_scripted(scenario, find_team(scenario, str(FILE)), "train", 0))
    assert 1 <= len(steps) <= scenario.environment().spec.max_turns
'''

TEAM = Skeleton(
    {"NAME.yaml": _TEAM, "test_NAME.py": _TEAM_TEST},
    "mas train scenario=plan_path algorithm.team=NAME.yaml train.steps=20 run_dir=runs/NAME",
    "mas check NAME.yaml scenario=plan_path",
)
