"""Write 200 questions and answers as JSONL: `python examples/lookups.py > lookups.jsonl`."""

import json
from random import Random

PEOPLE = ("Anna", "Ben", "Carla", "David", "Emma", "Frank")
JOBS = ("baker", "doctor", "farmer", "painter", "pilot", "teacher")
THINGS = ("apples", "books", "coins", "eggs", "pens", "stamps")

random = Random(0)
for _ in range(200):
    (a, b, c), (x, y, z) = random.sample(PEOPLE, 3), random.sample(JOBS, 3)
    numbers, thing, asked = random.sample(range(1, 10), 3), random.choice(THINGS), random.randrange(3)
    question = (
        f"{a} is a {x}, {b} is a {y} and {c} is a {z}. {a} has {numbers[0]} {thing}, {b} has {numbers[1]} and {c} has "
        f"{numbers[2]}. How many {thing} does the {(x, y, z)[asked]} have?"
    )
    print(json.dumps({"question": question, "answer": numbers[asked]}))
