"""A class with tools that change something: bring the things on two shelves to where they belong.

mas train scenario=examples/shelf.py:Shelf model.path=Qwen/Qwen3-0.6B run_dir=runs/shelf
"""

from random import Random

THINGS = ("lamp", "book", "vase", "clock")


class Shelf:
    """You put things on the shelves where they belong. When all are right, answer with done."""

    max_turns = 8
    tools = ("move", "look")

    def reset(self, random: Random) -> None:
        self.wanted = {thing: random.choice("AB") for thing in THINGS}
        self.places = {thing: random.choice("AB") for thing in THINGS}
        first = random.choice(THINGS)
        self.places[first] = "B" if self.wanted[first] == "A" else "A"

    def observe(self, view: str) -> str:
        return "Where they belong: " + ", ".join(f"{thing} on {shelf}" for thing, shelf in self.wanted.items())

    def look(self, shelf: str) -> str:
        """What stands on a shelf, A or B."""
        return ", ".join(thing for thing, place in self.places.items() if place == shelf) or "nothing"

    def move(self, thing: str, shelf: str) -> str:
        """Put a thing on shelf A or B."""
        if thing not in self.places or shelf not in ("A", "B"):
            raise ValueError(f"there is no {thing} or no shelf {shelf}")
        self.places[thing] = shelf
        return f"the {thing} stands on {shelf}"

    def step(self, action: str) -> float:
        return float(action == "done" and self.success())

    def success(self) -> bool:
        return self.places == self.wanted
