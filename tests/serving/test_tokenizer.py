"""The wrapped tokenizer: what it adds, what it leaves out, what it remembers."""

import pytest
from tokenizers.processors import TemplateProcessing

from mas.serving.model import tiny_tokenizer
from mas.serving.model_text import CharacterTokenizer, HubTokenizer, MessageTokenizer


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


TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}{% if add_generation_prompt %}<me>{% endif %}"
)


def chatting() -> HubTokenizer:
    inner = tiny_tokenizer()
    inner.chat_template = TEMPLATE.replace("{{ m.role }}", "{{ m.role[0] }}")
    return HubTokenizer(inner)


def test_a_conversation_is_written_as_the_template_has_it_and_an_empty_system_message_is_left_out() -> None:
    tokenizer = chatting()
    assert tokenizer.chat("Be kind.", "Who?") == tokenizer.encode("<s>Be kind.</><u>Who?</><me>")
    assert tokenizer.chat("", "Who?") == tokenizer.encode("<u>Who?</><me>")


def test_a_template_that_can_switch_thinking_off_is_filled_so() -> None:
    tokenizer = chatting()
    tokenizer.inner.chat_template += "{% if enable_thinking is not defined or enable_thinking %}think{% endif %}"
    assert tokenizer.chat("", "Who?") == tokenizer.encode("<u>Who?</><me>")
    bare = tokenizer.inner.apply_chat_template(
        [{"role": "user", "content": "Who?"}], tokenize=False, add_generation_prompt=True
    )
    assert bare == "<u>Who?</><me>think"


@pytest.mark.parametrize("tokenizer", [chatting(), CharacterTokenizer()], ids=["hub", "characters"])
def test_a_prefill_is_the_end_of_the_prompt(tokenizer: HubTokenizer | CharacterTokenizer) -> None:
    plain = tokenizer.chat("Be kind.", "Who?")
    assert tokenizer.chat("Be kind.", "Who?", "It is") == plain + tokenizer.encode("It is")


def test_servers_that_take_messages_are_sent_a_prefill_as_the_last_one() -> None:
    tokenizer = MessageTokenizer()
    asked = [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "It is"}]
    assert tokenizer.messages(tokenizer.chat("", "Who?", "It is")) == asked
    assert tokenizer.messages(tokenizer.chat("", "Who?")) == asked[:1]
