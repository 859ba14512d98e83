"""A class of environments of your own: which digit is the largest, if each member sees half of the digits?

mas train scenario=examples/largest.py:Largest train.steps=200 run_dir=runs/largest
"""

from random import Random


class Largest:
    """The planner sees the first half of the digits, the executor the second: which digit is the largest?"""

    def __init__(self, length: int = 4) -> None:
        self.length = length

    def reset(self, random: Random) -> None:
        self.digits = "".join(random.choice("0123456789") for _ in range(self.length))

    def observe(self, view: str) -> str:
        half = self.length // 2
        return {"planner": self.digits[:half], "executor": self.digits[half:]}.get(view, self.digits)

    def legal(self) -> list[str]:
        return list("0123456789")

    def answer(self) -> str:
        return max(self.digits)

    def step(self, action: str) -> float:
        return float(action == self.answer())
