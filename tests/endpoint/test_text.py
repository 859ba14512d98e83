"""Text out of tokens while they come: whole characters only, and no stop string in any piece."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from mas.endpoint.completions import StopFinder
from mas.serving.detokenizer import BROKEN, Detokenizer
from mas.serving.model import tiny_tokenizer
from mas.serving.model_text import HubTokenizer


def bytes_tokenizer() -> HubTokenizer:
    """Byte-level BPE as most hub models have it: an emoji is several tokens."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<eos>"],
        show_progress=False,
    )
    inner.train_from_iterator(["the cat sat on the mat, the cat"], trainer)
    return HubTokenizer(PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<eos>"))


def words_tokenizer() -> HubTokenizer:
    """Pieces with a mark for the space before them, of which the first one is dropped."""
    inner = Tokenizer(models.Unigram([("<unk>", 0.0), *((f"▁{word}", -1.0) for word in ("the", "cat", "s"))], 0))
    inner.pre_tokenizer = pre_tokenizers.Metaspace()
    inner.decoder = decoders.Metaspace()
    return HubTokenizer(PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>"))


def fallback_tokenizer() -> HubTokenizer:
    """Words, and bytes for all else, as Llama 2, Mistral and Gemma have them: a row of bytes is read as a whole."""
    vocabulary = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁the", "▁cat"]
    numbered = {token: number for number, token in enumerate(vocabulary)}
    inner = Tokenizer(models.BPE(vocab=numbered, merges=[], byte_fallback=True, unk_token="<unk>"))
    inner.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return HubTokenizer(PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>"))


BYTES, WORDS, TINY = bytes_tokenizer(), words_tokenizer(), HubTokenizer(tiny_tokenizer())
FALLBACK, THE, CAT = fallback_tokenizer(), 257, 258


def told(tokenizer: HubTokenizer, ids: list[int]) -> list[str]:
    words = Detokenizer(tokenizer.decode)
    return [*(words.add(token) for token in ids), words.end()]


@given(st.text(max_size=40))
def test_pieces_of_any_text_are_whole_characters_and_join_to_it(text: str) -> None:
    ids = list(BYTES.encode(text))
    parts = told(BYTES, ids)
    assert "".join(parts) == text == BYTES.decode(ids)
    if BROKEN not in text:
        assert not any(BROKEN in part for part in parts)


@given(st.lists(st.integers(0, 255), max_size=30))
def test_bytes_that_are_no_text_come_out_as_the_tokenizer_reads_them(ids: list[int]) -> None:
    assert "".join(told(BYTES, ids)) == BYTES.decode(ids)


def test_a_character_of_four_bytes_comes_whole_with_its_last_token() -> None:
    ids = list(BYTES.encode("a🙂b"))
    assert len(ids) == 6
    assert told(BYTES, ids) == ["a", "", "", "", "🙂", "b", ""]


def test_a_character_that_stays_incomplete_is_told_at_the_end() -> None:
    ids = list(BYTES.encode("a🙂"))[:3]
    assert told(BYTES, ids) == ["a", "", "", BROKEN]


def test_words_behind_a_wrong_byte_are_told_as_they_come() -> None:
    ids = [*(1 + byte for byte in "é".encode()), 1 + 0xFF, THE, CAT, CAT]
    assert told(FALLBACK, ids) == ["", "é", "", f"{BROKEN * 2} the", " cat", " cat", ""]
    assert found((" cat",), told(FALLBACK, ids)) == (["", "é", "", f"{BROKEN * 2} the", ""], " cat")


@given(st.lists(st.sampled_from([THE, CAT, *(1 + byte for byte in "é🙂x".encode()), 1 + 0xFF]), max_size=12))
def test_two_words_behind_any_bytes_are_told_at_once(ids: list[int]) -> None:
    assert told(FALLBACK, [*ids, *[THE] * 12, CAT])[-2:] == [" cat", ""]


def test_spaces_that_depend_on_the_token_before_are_kept() -> None:
    ids = list(WORDS.encode("the cat s the"))
    assert told(WORDS, ids) == ["the", " cat", " s", " the", ""]


def test_special_tokens_say_nothing() -> None:
    ids = [*TINY.encode("ab"), 1, *TINY.encode("c"), 1]
    assert "".join(told(TINY, ids)) == "abc"


def found(stops: tuple[str, ...], parts: list[str]) -> tuple[list[str], str | None]:
    finder, said = StopFinder(stops), []
    for part in parts:
        safe, stop = finder.add(part)
        said.append(safe)
        if stop is not None:
            return said, stop
    return [*said, finder.end()], None


def cut(text: str, stops: tuple[str, ...]) -> tuple[str, str | None]:
    """The definition: the shortest beginning of the text that ends with a stop string, the longest such."""
    for end in range(1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            longest = max(ending, key=len)
            return text[: end - len(longest)], longest
    return text, None


@given(
    st.text("abc", max_size=20),
    st.lists(st.text("abc", min_size=1, max_size=4), max_size=3).map(tuple),
    st.lists(st.integers(1, 5), min_size=20, max_size=20),
)
def test_a_stop_string_is_found_in_whatever_pieces_the_text_comes(
    text: str, stops: tuple[str, ...], sizes: list[int]
) -> None:
    parts, rest = [], text
    for size in sizes:
        parts.append(rest[:size])
        rest = rest[size:]
    wanted, stop = cut(text, stops)
    said, by = found(stops, [*parts, rest])
    assert ("".join(said), by) == (wanted, stop)
    assert all(wanted.startswith("".join(said[:n])) for n in range(len(said)))


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (["one", "\n", "two"], ["one", "", "\ntwo", ""]),  # one line end could have become two
        (["one\n", "\ntwo"], ["one", ""]),
        (["one\n"], ["one", "\n"]),
    ],
)
def test_what_may_become_a_stop_string_is_held_back(parts: list[str], said: list[str]) -> None:
    assert found(("\n\n",), parts)[0] == said
