"""Generated cases: an archive that knows things by other names than the question does, and a glossary between the two.

Several documents are about what is asked, of different years; the question wants the latest or the earliest. No query
can say that, so search alone does not answer.
"""

from functools import lru_cache
from random import Random

import msgspec

from mas.scenarios.world import Style
from mas.tools import Bm25

ALIASES, TERMS = "wxyz", "abcd"
"""In letters: what questions and what documents call the same four things."""
YEARS = "1234"
NEWEST, OLDEST = "n", "o"
RECORDS: dict[Style, int] = {"letters": 3, "words": 4}
"""Documents about one thing, or about one attribute of it in words."""
SHOWN: dict[Style, int] = {"letters": 3, "words": 5}
"""How many documents a search shows."""

SPOKEN = (
    "bell keeper", "lamp lighter", "bridge warden", "well digger", "bee keeper", "map maker", "ferry pilot",
    "wall mason", "salt seller", "wool dyer", "clock mender", "horse doctor",
)  # fmt: skip
"""What questions call people, in words."""
ARCHIVED = (
    "campaner", "lumenar", "pontier", "puteor", "apiarch", "chartor", "navarin", "murarin", "salinor", "tincter",
    "horolin", "equilar",
)  # fmt: skip
"""What the archive calls them; who is who is drawn for each case."""
_VALUES = {
    "wage": ([str(number) for number in range(11, 99)], ["silver crowns", "copper pence", "gold ducats"]),
    "home": (["grey", "white", "low", "crooked", "stone"], ["mill", "tower", "barn", "cottage", "gatehouse"]),
    "tool": (["iron", "brass", "oak", "horn", "copper"], ["ladle", "compass", "lantern", "chisel", "whistle"]),
}
_WHICH = {NEWEST: "latest", OLDEST: "earliest"}


class RetrievalCase(msgspec.Struct, frozen=True):
    """One task.

    Attributes:
        glossary: what the archive calls the things of questions; only the rewriter may read it.
        needed: position of the one document that answers. query: words that find it.
    """

    question: str
    glossary: str
    documents: tuple[str, ...]
    needed: int
    answer: str
    query: str

    @property
    def entities(self) -> tuple[str, ...]:
        """What leads to the answer: the archive's name of the thing that is asked about, in words the year, and it."""
        name, document = self.query.split()[0], self.documents[self.needed].split()
        return (name, self.answer) if len(name) == 1 else (name, document[2].rstrip(":"), self.answer)


def make(random: Random, style: Style, terms: int) -> RetrievalCase:
    """A case; `terms` is how many things the archive knows, in words."""
    return _lettered(random) if style == "letters" else _worded(random, terms)


def content_of(case: RetrievalCase, style: Style) -> str:
    """All that a good search shows: two cases that differ elsewhere are one."""
    hits = search(case.documents, (case.query,), SHOWN[style])
    return "|".join([case.question, case.glossary, *(case.documents[hit] for hit in hits)])


def search(documents: tuple[str, ...], queries: tuple[str, ...], most: int) -> tuple[int, ...]:
    """Positions of the documents that are found: the best of every query, then the second of every one, and so on."""
    rankings = [[position for position, _ in _index(documents).rank(query)] for query in queries]
    longest = max(map(len, rankings), default=0)
    in_turn = [ranking[place] for place in range(longest) for ranking in rankings if place < len(ranking)]
    return tuple(dict.fromkeys(in_turn))[:most]


@lru_cache(maxsize=64)
def _index(documents: tuple[str, ...]) -> Bm25:
    return Bm25(documents)


def _lettered(random: Random) -> RetrievalCase:
    """A document is a thing, a year and a digit, `a 3 7`; the glossary names the things of w, x, y and z in order."""
    glossary = "".join(random.sample(TERMS, len(TERMS)))
    asked, which = random.randrange(len(ALIASES)), random.choice((NEWEST, OLDEST))
    documents = tuple(
        f"{term} {year} {random.randrange(10)}" for term in TERMS for year in random.sample(YEARS, RECORDS["letters"])
    )
    term = glossary[asked]
    needed = _wanted(documents, [at for at, text in enumerate(documents) if text[0] == term], which, 1)
    return RetrievalCase(ALIASES[asked] + which, glossary, documents, needed, documents[needed].split()[2], term)


def _worded(random: Random, terms: int) -> RetrievalCase:
    """Annals under the archive's names, and tales under the names of questions, which answer nothing."""
    spoken, archived = random.sample(SPOKEN, terms), random.sample(ARCHIVED, terms)
    records = [(term, attribute) for term in archived for attribute in _VALUES]
    documents = [
        f"Annals of {year}: the {term}, {attribute} {' '.join(random.choice(part) for part in _VALUES[attribute])}."
        for term, attribute in records
        for year in random.sample(range(1801, 1900), RECORDS["words"])
    ]
    documents += [
        f"Tale of {random.randrange(1801, 1900)}: the {alias} talked about {attribute} and weather."
        for alias in spoken
        for attribute in _VALUES
    ]
    random.shuffle(documents)
    asked, attribute, which = random.randrange(terms), random.choice(tuple(_VALUES)), random.choice((NEWEST, OLDEST))
    about = f"the {archived[asked]}, {attribute} "
    needed = _wanted(tuple(documents), [at for at, text in enumerate(documents) if about in text], which, 2)
    return RetrievalCase(
        question=f"Which {attribute} do the {_WHICH[which]} annals give the {spoken[asked]}?",
        glossary="\n".join(f"{alias}: {term}" for alias, term in zip(spoken, archived, strict=True)),
        documents=tuple(documents),
        needed=needed,
        answer=documents[needed].partition(about)[2].rstrip("."),
        query=f"{archived[asked]} {attribute}",
    )


def _wanted(documents: tuple[str, ...], positions: list[int], which: str, place: int) -> int:
    """Of documents at these positions the latest or earliest; the year is the word at `place`."""
    choose = max if which == NEWEST else min
    return choose(positions, key=lambda at: int(documents[at].split()[place].rstrip(":")))
