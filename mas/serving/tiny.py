"""The tiny base: a Qwen3-architecture model of some 80 thousand weights with a character tokenizer, made here.

Small enough that a team learns on a laptop in seconds; the same code paths as a hub model. Its weights are random
until `mas.training.base` gives it part of a skill.
"""

import string

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from mas.config.options import ModelOptions, TinyOptions
from mas.serving.check import ModelLimits
from mas.serving.model import ModelText
from mas.serving.tokenizer import HubTokenizer

SPECIAL = ("<pad>", "<eos>", "<unk>")
ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase + " \n.,;:=<>()[]+-*/#?!_|"


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """One token per character of `ALPHABET`; anything else is `<unk>`."""
    vocabulary = {token: index for index, token in enumerate((*SPECIAL, *ALPHABET))}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    inner.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=inner,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
        clean_up_tokenization_spaces=False,
    )


def tiny_model(options: TinyOptions) -> Qwen3ForCausalLM:
    """Random weights from `options.seed`; the global random state is left as it was."""
    tokenizer = tiny_tokenizer()
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=options.hidden,
        intermediate_size=options.intermediate,
        num_hidden_layers=options.layers,
        num_attention_heads=options.heads,
        num_key_value_heads=options.kv_heads,
        head_dim=options.head_size or options.hidden // options.heads,
        max_position_embeddings=options.context,
        initializer_range=options.spread,
        tie_word_embeddings=True,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(options.seed)
        return Qwen3ForCausalLM(config)  # type: ignore[no-untyped-call]


def tiny_text(options: ModelOptions) -> ModelText:
    """How the tiny base reads text, whatever its weights."""
    tokenizer = tiny_tokenizer()
    limits = ModelLimits(len(tokenizer), min(options.tiny.context, options.max_context))
    return ModelText(HubTokenizer(tokenizer), limits, (SPECIAL.index("<eos>"),), options.prompts)
