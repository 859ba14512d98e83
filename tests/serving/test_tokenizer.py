"""The wrapped tokenizer: what it adds, what it leaves out, what it remembers."""

import pytest
from tokenizers.processors import TemplateProcessing

from mas.serving.tiny import tiny_tokenizer
from mas.serving.tokenizer import HubTokenizer


def test_a_tokenizer_without_a_begin_token_adds_nothing() -> None:
    assert HubTokenizer(tiny_tokenizer()).begin == ()


def test_a_begin_token_is_found_and_is_no_part_of_encode() -> None:
    inner = tiny_tokenizer()
    inner.backend_tokenizer.post_processor = TemplateProcessing(single="<eos> $A", special_tokens=[("<eos>", 1)])
    tokenizer = HubTokenizer(inner)
    assert tokenizer.begin == (1,)
    assert tokenizer.encode("ab") == HubTokenizer(tiny_tokenizer()).encode("ab")


def test_an_end_token_behind_every_text_is_not_taken_for_a_begin_token() -> None:
    inner = tiny_tokenizer()
    inner.backend_tokenizer.post_processor = TemplateProcessing(single="$A <eos>", special_tokens=[("<eos>", 1)])
    assert HubTokenizer(inner).begin == ()


@pytest.mark.parametrize("length", [1, 256, 257, 5000])
def test_long_texts_are_encoded_like_short_ones(length: int) -> None:
    tokenizer = HubTokenizer(tiny_tokenizer())
    ids = tokenizer.encode("a" * length)
    assert ids == tokenizer.encode("a") * length
    assert tokenizer.decode(ids) == "a" * length
