"""A class of environments of your own: is the number of ones even or odd, if each member sees half of the bits?

mas train scenario=examples/parity.py:Parity scenario.options.length=4 train.steps=40 run_dir=runs/parity
"""

from random import Random


class Parity:
    """The planner sees the first half of the bits, the executor the second: is the number of ones even or odd?"""

    def __init__(self, length: int = 6) -> None:
        self.length = length

    def reset(self, random: Random) -> None:
        self.bits = "".join(random.choice("01") for _ in range(self.length))

    def observe(self, view: str) -> str:
        half = self.length // 2
        return {"planner": self.bits[:half], "executor": self.bits[half:]}.get(view, self.bits)

    def legal(self) -> list[str]:
        return ["even", "odd"]

    def answer(self) -> str:
        return self.legal()[self.bits.count("1") % 2]

    def step(self, action: str) -> float:
        return float(action == self.answer())
