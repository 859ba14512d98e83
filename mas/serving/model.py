"""The one base model of all roles: loaded from a directory or a hub id, or the tiny base that mas makes.

The tiny base is a Qwen3-architecture model of some 80 thousand weights with a character tokenizer, small enough that a
team learns on a laptop in seconds; the same code paths as a hub model. Its weights are random until
`mas.training.base` gives it part of a skill.
"""

import string
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

# isort: split
import mas.serving.without_scipy  # noqa: F401 - imported for its effect, which must come before a model's module

# isort: split
from safetensors import SafetensorError
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.utils.hub import cached_file, extract_commit_hash
from transformers.utils.logging import disable_progress_bar
from transformers.utils.peft_utils import find_adapter_config_file

from mas.config.options import SMOLLM2, ModelOptions, TinyOptions
from mas.core.errors import ModelError
from mas.serving.adapter_bank import AdapterBank
from mas.serving.attention import group_queries, quicken_norms
from mas.serving.kv_cache import Attention
from mas.serving.logits import make_head_input_contiguous
from mas.serving.model_sources import PUBLISHED, Origin, smollm2
from mas.serving.model_text import HubTokenizer, ModelLimits, ModelText
from mas.serving.sharded_base import Shard, ShardedBlocks, place_outside_blocks

NO_CODE = {"trust_remote_code": False}
"""A model is weights and text: code that comes with it is never run, and weights are never unpickled."""
WEIGHTS = NO_CODE | {"use_safetensors": True, "attn_implementation": None}
"""A `config.json` may name code of a hub as its attention. None leaves that out: torch's attention, where the
architecture has it, else the model's own (`eager`)."""
FAILURES = (OSError, ValueError, KeyError, ImportError, SafetensorError)
"""What transformers raises for models that it cannot load."""
SPECIAL = ("<pad>", "<eos>", "<unk>")
ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase + " \n.,;:=<>()[]+-*/#?!_|"


@dataclass(frozen=True, slots=True)
class BaseModel:
    """A frozen base with its adapter bank. `name` is what was loaded, a directory or a hub id; `origin` where others
    find it; `blocks` what this process holds of a base that is sharded."""

    name: str
    origin: Origin
    model: PreTrainedModel
    bank: AdapterBank
    text: ModelText
    options: ModelOptions
    attention: Attention
    blocks: ShardedBlocks | None = None

    @property
    def tokenizer(self) -> HubTokenizer:
        return self.text.tokenizer

    @property
    def limits(self) -> ModelLimits:
        return self.text.limits

    @property
    def stop_ids(self) -> tuple[int, ...]:
        return self.text.stop_ids

    @property
    def chats(self) -> bool:
        """Whether roles use the chat template (True) or compact prompts."""
        return self.text.chats


def load_base(
    options: ModelOptions,
    path: str | Path | None = None,
    text: ModelText | None = None,
    shard: Shard | None = None,
) -> BaseModel:
    """Load a causal language model; `path` overrides `options.path` (where the tiny base lies).

    Args:
        text: what `load_text` gave for it; None: it is loaded, too.
        shard: the part of its blocks that the device holds; the host's memory holds all of them until
            `BaseModel.blocks` is connected. None: the device holds all.

    Raises:
        ModelError: the path is no model directory, the model holds an adapter, or it cannot be loaded or downloaded.
    """
    source = _source(options, path)
    text = text or load_text(options, source)
    device = device_of(options.device)
    try:
        dtype = getattr(torch, options.dtype)
        model: Any = AutoModelForCausalLM.from_pretrained(source, dtype=dtype, **WEIGHTS)
    except FAILURES as error:
        raise unloadable(source, error) from error
    if shard is None:
        model.to(device)
    else:
        place_outside_blocks(model, device)
    group_queries(model)
    quicken_norms(model)
    make_head_input_contiguous(model)
    bank = AdapterBank(model, options.targets)
    return BaseModel(
        name=source,
        origin=_origin(options, source),
        model=model,
        bank=bank,
        text=text,
        options=options,
        attention=Attention.of(model),
        blocks=None if shard is None else ShardedBlocks(model, shard, device),
    )


def load_text(options: ModelOptions, path: str | Path | None = None) -> ModelText:
    """Load all of a model but its weights; `path` overrides `options.path`.

    Raises:
        ModelError: the path is no model directory, the model holds an adapter, or it cannot be loaded or downloaded.
    """
    source = _source(options, path)
    _check_source(source)
    disable_progress_bar()  # type: ignore[no-untyped-call]  # transformers annotates in part
    try:
        config = AutoConfig.from_pretrained(source, **NO_CODE)  # one file: that there is no hub is known first
        tokenizer = AutoTokenizer.from_pretrained(source, **NO_CODE)
        adapter = find_adapter_config_file(source)
    except FAILURES as error:
        raise unloadable(source, error) from error
    if adapter is not None:  # transformers would put it on the base, and all adapters of mas on top
        raise ModelError(
            f"model {source!r} holds an adapter (adapter_config.json), and mas trains its own on a base without one: "
            "merge the adapter into the weights (merge_and_unload of PEFT), or name a copy without the adapter's files"
        )
    try:
        generation = GenerationConfig.from_pretrained(source)
    except OSError:  # many models have none
        generation = GenerationConfig.from_model_config(config)
    stop = generation.eos_token_id
    text_config = config.get_text_config()
    longest = _positions(text_config) or options.max_context
    return ModelText(
        tokenizer=HubTokenizer(tokenizer),
        limits=ModelLimits(int(text_config.vocab_size), min(longest, options.max_context)),
        stop_ids=tuple(stop) if isinstance(stop, list) else (() if stop is None else (int(stop),)),
        prompts=options.prompts,
    )


def unloadable(source: str, error: Exception) -> ModelError:
    """The error of a model that transformers does not load."""
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    return ModelError(f"model {source!r} cannot be loaded as a causal language model: {first}")


def _positions(config: Any) -> int | None:
    """How long a text may be: where positions change with the longest text of a batch, not beyond that point."""
    longest: int | None = getattr(config, "max_position_embeddings", None)
    rope = getattr(config, "rope_parameters", None) or {}
    if longest is not None and rope.get("rope_type") in ("longrope", "dynamic"):
        return min(longest, rope.get("original_max_position_embeddings") or longest)
    return longest


def device_of(name: str) -> torch.device:
    """The device that `model.device` names.

    Raises:
        ModelError: there is none.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        raise ModelError("device=cuda, but torch sees no CUDA device here; use device=auto or device=cpu")
    return torch.device(name)


def _source(options: ModelOptions, path: str | Path | None) -> str:
    """What transformers loads: a directory or a hub id."""
    named = path or options.path
    return str(smollm2() if named == SMOLLM2 else named)


def _origin(options: ModelOptions, source: str) -> Origin:
    """Of a model that was loaded: its files are in the hub's cache, below their commit."""
    if options.path == SMOLLM2:
        return PUBLISHED
    if Path(source).is_dir():
        return Origin(source)
    return Origin(source, extract_commit_hash(cached_file(source, "config.json", local_files_only=True), None))


def _check_source(source: str) -> None:
    path = Path(source)
    looks_local = path.exists() or source.startswith((".", "/", "~")) or source.count("/") > 1
    if not looks_local:
        return
    wanted = "a directory with config.json, the weights (*.safetensors) and the tokenizer files"
    if not path.is_dir():
        problem = "is a file" if path.exists() else "does not exist"
        raise ModelError(f"model directory {source!r} {problem}; needed: {wanted}, a hub id, 'tiny' or 'smollm2'")
    if not (path / "config.json").is_file():
        held = sorted(child.name for child in path.iterdir())[:8]
        raise ModelError(f"model directory {source!r} has no config.json (it holds {held}); needed: {wanted}")


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
