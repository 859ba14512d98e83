"""Questions for which nobody needs a file: which of four digits is the largest?"""

from functools import lru_cache
from itertools import product

from mas.scenarios.questions.records import QuestionRecord, Questions, in_eval

DIGITS = "0123456789"


@lru_cache(maxsize=8)
def largest_digits(eval_share: float) -> Questions:
    """All four-digit questions, split by content."""
    every = [QuestionRecord("".join(four), max(four)) for four in product(DIGITS, repeat=4)]
    return {
        "train": tuple(one for one in every if not in_eval(one, eval_share)),
        "eval": tuple(one for one in every if in_eval(one, eval_share)),
    }
