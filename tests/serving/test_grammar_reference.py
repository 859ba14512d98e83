"""The mask of a grammar beside a plain reference: all texts of the language, and every token of the model tried.

llguidance leaves one thing out on purpose: where a single text is left, it allows no other spelling of it than the
tokenizer's own.
"""

import re
from typing import NamedTuple

import pytest
from conftest import BaseFor

from mas.config.options import ModelOptions
from mas.core.engine import Grammar
from mas.serving.grammar import Grammars
from mas.serving.model import load_text
from mas.serving.model_text import ModelText

LANGUAGES = {
    "( )?(dog|do)": ["dog", "do", " dog", " do"],
    "cat|dog|horse": ["cat", "dog", "horse"],
}


class Spelled(NamedTuple):
    """A model's text and what each token spells; special tokens spell nothing."""

    text: ModelText
    tokens: dict[int, str]


@pytest.fixture(scope="module", params=["tiny", "smollm2"])
def spelled(request: pytest.FixtureRequest, base_for: BaseFor) -> Spelled:
    if request.param == "tiny":
        text = base_for("relay").text
    else:
        text = load_text(ModelOptions(path="smollm2"), str(request.getfixturevalue("smollm")))
    decoded = {token: text.tokenizer.decode((token,)) for token in range(text.limits.vocabulary)}
    return Spelled(text, {token: said for token, said in decoded.items() if said})


@pytest.mark.parametrize(("regex", "texts"), LANGUAGES.items())
def test_a_mask_has_the_tokens_that_lead_to_a_text_and_the_end_exactly_where_a_text_is_whole(
    spelled: Spelled, regex: str, texts: list[str]
) -> None:
    assert all(re.fullmatch(regex, text) for text in texts)
    tokenizer, grammars = spelled.text.tokenizer, Grammars(spelled.text)
    reached = set[str]()
    waiting: list[tuple[int, ...]] = [()]
    while waiting:
        prefix = waiting.pop()
        so_far = tokenizer.decode(prefix)
        follows = [token for token, said in spelled.tokens.items() if any(t.startswith(so_far + said) for t in texts)]
        left = [text.removeprefix(so_far) for text in texts if text.startswith(so_far)]
        if len(left) == 1 and left[0]:  # one text is left: its tokens are those that the tokenizer writes it with
            assert tokenizer.encode(left[0])[0] in follows
            follows = [tokenizer.encode(left[0])[0]]
        ends = [grammars.end] if so_far in texts else []
        matcher = grammars.matcher(Grammar("regex", regex))
        for token in prefix:
            matcher.follow(token)
        assert matcher.mask().nonzero()[0].tolist() == sorted([*follows, *ends]), so_far
        reached.add(so_far)
        waiting += [(*prefix, token) for token in follows]
    assert reached >= set(texts)
