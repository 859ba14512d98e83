"""Whether a model works here, and how well: what `mas doctor` prints, from its configuration to its speed.

Leaves out on purpose: whether it learns, and how fast another engine is; of vLLM it is only asked whether it is there.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mas.config.options import SMOLLM2
from mas.core.errors import ConfigError, MasError, RefusedRequest
from mas.observe.durations import rough_time
from mas.serving.base_measures import Footprint, check_decoding, measure_speed
from mas.serving.model import BaseModel, load_base, load_text
from mas.serving.model_sources import is_cached, missing_packages
from mas.serving.model_text import HubTokenizer, ModelText
from mas.serving.vllm_options import vllm_arguments
from mas.training.base import base_path
from mas.training.estimates import Work, check_memory, needs_of, rows_of
from mas.training.learner import Learner
from mas.training.saved import new_adapters
from mas.training.setup import Setup
from mas.training.updates.build_update import loss_of

_SYSTEM, _USER, _ANSWER = "0system0", "0user0", "0answer0"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of a diagnosis; `is_fatal`: with this the model does not work."""

    name: str
    text: str
    is_fatal: bool = False


def diagnose(setup: Setup, note: Callable[[str], None]) -> Iterator[Finding]:
    """Findings as they are made. An error that later ones would need solved is the last of them.

    Args:
        setup: its team's prompts and adapters are measured.
        note: called with a line of text before slow steps.

    Raises:
        ConfigError: a server elsewhere plays, so that there is no model here.
    """
    if setup.is_served_elsewhere:
        raise ConfigError(
            f"with engine={setup.engine.name} a server elsewhere has the model: there is none here to look at"
        )
    try:
        yield from _findings(setup, note)
    except MasError as error:
        yield Finding("error", str(error), is_fatal=True)


def _findings(setup: Setup, note: Callable[[str], None]) -> Iterator[Finding]:
    if setup.model.path == SMOLLM2:
        missing = missing_packages()
        told = "those of mas[smollm] are installed" if not missing else f"without {' and '.join(missing)} (mas[smollm])"
        yield Finding("packages", f"{told}; the model is {'in the cache' if is_cached() else 'made now'}")
    path = base_path(setup, note)
    text, footprint = load_text(setup.model, path), Footprint.of(setup.model, path)
    yield Finding("model", f"{path}, {footprint.parameters:,} parameters in {setup.model.dtype}")
    yield from _text(text)
    work = Work.bound(setup, text)
    longest = f"{work.width} tokens, the longest prompt of {setup.scenario.name} with its answer"
    yield Finding("prompts", longest, is_fatal=work.width > text.limits.context)
    if work.widest >= text.limits.context:
        yield Finding(
            "prompts",
            f"with messages and earlier calls they may outgrow the context of {text.limits.context} tokens: an episode "
            "in which one does fails; lower history, or max_tokens of who writes the messages",
        )
    adapters, said = set(setup.trained_adapters.values()), list[str]()
    check_memory(setup, needs_of(setup, footprint, work, is_trained=True), said.append)
    yield Finding("memory", "; ".join(line.removeprefix("memory: ") for line in said))
    base = load_base(setup.model, path, text)
    yield from _computed(setup, base, adapters)
    speed = measure_speed(base, rows_of(setup))
    yield Finding("speed", speed.text())
    tasks = setup.train.eval_tasks
    step, evaluation = (rough_time(one) for one in (work.step_s(speed, setup), work.evaluation_s(speed, setup)))
    yield Finding(
        "time",
        f"at most about {step} for a step of {setup.scenario.name}, {evaluation} for an evaluation of {tasks} tasks",
    )


def _text(text: ModelText) -> Iterator[Finding]:
    """How the model reads text, and what ends one."""
    tokenizer = text.tokenizer
    if tokenizer.has_chat:
        told, is_fatal = system_of(tokenizer)
        yield Finding("chat template", f"the model's own; {told}", is_fatal=is_fatal and text.chats)
    else:
        yield Finding("chat template", "none: roles use their compact templates", is_fatal=text.chats)
    names = ", ".join(f"{_name(tokenizer, one)} ({one})" for one in text.stop_ids) or "none"
    end = turn_end(tokenizer) if text.chats else None
    if end is not None and end not in text.stop_ids:
        names += f"; the template ends answers with {_name(tokenizer, end)} ({end}), so none stops there"
    yield Finding("stop tokens", names)
    yield Finding("context", f"{text.limits.context} tokens (at most model.max_context), {text.limits.vocabulary} ids")


def system_of(tokenizer: HubTokenizer) -> tuple[str, bool]:
    """What a chat template does with system messages, for people, and whether roles cannot be used with it."""
    bare = tokenizer.written([("user", _USER)]).partition(_USER)[0]
    try:
        before, is_there, rest = tokenizer.written([("system", _SYSTEM), ("user", _USER)]).partition(_SYSTEM)
    except RefusedRequest:
        return "it takes no system message, and roles have one", True
    if not is_there:
        return "it drops system messages, and roles have one", True
    between = rest.partition(_USER)[0]
    if len(bare) <= len(before) + len(between):
        return "it adds no system message", False
    added = bare
    if bare.startswith(before) and bare.endswith(between):
        added = bare[len(before) : len(bare) - len(between)]
    return f"where a role has no system message it adds {added!r}", False


def turn_end(tokenizer: HubTokenizer) -> int | None:
    """The token that the template puts behind an answer; None: it takes no further turns."""
    try:
        talk = tokenizer.written([("user", _USER), ("assistant", _ANSWER), ("user", _USER)])
    except RefusedRequest:
        return None
    ids = tokenizer.encode(talk.partition(_ANSWER)[2])
    return ids[0] if ids else None


def _name(tokenizer: HubTokenizer, token: int) -> str:
    return str(tokenizer.inner.convert_ids_to_tokens(token))


def _computed(setup: Setup, base: BaseModel, adapters: set[str]) -> Iterator[Finding]:
    """Whether engines and the learner compute what the model does."""
    if setup.engine.name == "vllm":
        vllm_arguments(base, setup.engine, base.options.highest_rank)
        yield Finding("engine", "vllm is installed and has these options")
    check_decoding(base)
    yield Finding("decoding", "the embedded engine computes what the model's own forward pass does")
    if adapters:
        learner = Learner(base, new_adapters(base, adapters, 0), setup.learner, loss_of(setup.algorithm))
        allowed = f"{learner.tolerance:.2g} nats a token are taken for rounding"
        yield Finding("learning", f"packed rows have the log-probabilities of rows alone; {allowed}")
