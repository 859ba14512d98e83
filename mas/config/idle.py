"""Keys that change nothing beside the other values: refused where somebody sets them, since they would mislead."""

from mas.config.algorithm import AlgorithmOptions, SamplerOptions
from mas.config.options import Config


def why_idle(key: str, config: Config) -> str | None:
    """Why a dotted key has no effect in this configuration; None: it has one."""
    algorithm = config.algorithm
    is_tree = algorithm.sampler.mode != "parallel"
    if reason := _why_sampler_idle(key, algorithm.sampler) or _why_update_idle(key, algorithm):
        return reason
    if key == "algorithm.sampler.continuations" and algorithm.sampler.lookahead == "action":
        return "with lookahead=action nothing is played on, so there is nothing to average"
    if reason := _why_advantage_idle(key, algorithm):
        return reason
    if key == "algorithm.loss.ratio" and algorithm.loss.ratio == "sequence" and is_tree:
        return "in tree sampling every turn is a trajectory of its own; write ratio=turn, or use sampler.mode=parallel"
    if reason := _why_section_idle(key, config):
        return reason
    if key.startswith("trace.") and key != "trace.every" and config.trace.every == 0:
        return "trace.every=0 traces no step"
    if key == "train.budget_prompts" and config.train.token_budget is None:
        return "train.token_budget=null is no budget"
    if key == "train.start" and algorithm.is_training_free:
        return "algorithm.update=training_free trains no adapter"
    if key.startswith("model.tiny.") and config.model.path != "tiny":
        return f"model.path is {config.model.path!r}, not the tiny base"
    return None


def _why_sampler_idle(key: str, sampler: SamplerOptions) -> str | None:
    mode = sampler.mode
    if key in _TREE_ONLY and mode == "full_tree":
        return "algorithm.sampler.mode=full_tree carries every candidate on to the end; only mode=tree looks ahead"
    if key in _TREE_ONLY and mode != "tree":
        return f"algorithm.sampler.mode={mode} plays whole episodes; only mode=tree has decisions to look ahead from"
    return None


def _why_advantage_idle(key: str, algorithm: AlgorithmOptions) -> str | None:
    if key.startswith("algorithm.reward.weights") and algorithm.reward.source == "outcome":
        return "algorithm.reward.source=outcome pays no named term; weigh it with algorithm.reward.alpha"
    if key in _ALONE and algorithm.reward.model is not None and algorithm.reward.model.joins == "alone":
        return "algorithm.reward.model.joins=alone leaves no term but the model's own"
    if key == "algorithm.advantage.decay" and algorithm.advantage.baseline != "running":
        return "only baseline=running forgets"
    uncertainty = algorithm.advantage.uncertainty
    if key.startswith(_UNCERTAINTY) and uncertainty is not None:
        return uncertainty.why_idle(key.removeprefix(_UNCERTAINTY))
    return None


def _why_update_idle(key: str, algorithm: AlgorithmOptions) -> str | None:
    if key.startswith(_PREFERENCE):
        if algorithm.update != "preference":
            return "only algorithm.update=preference has it"
        return algorithm.preference.why_idle(key.removeprefix(_PREFERENCE))
    if algorithm.update == "preference" and key.startswith((_LOSS, "algorithm.advantage.")):
        return "algorithm.update=preference imitates and prefers; only update=policy_gradient has it"
    if key.startswith(_EXPERIENCE):
        if not algorithm.is_training_free:
            return "only algorithm.update=training_free has it"
        return algorithm.experience.why_idle(key.removeprefix(_EXPERIENCE))
    if algorithm.is_training_free and key.startswith(_WEIGHTS):
        return "algorithm.update=training_free changes no weights"
    return None


def _why_section_idle(key: str, config: Config) -> str | None:
    algorithm = config.algorithm
    if key.startswith(_LOSS):
        return algorithm.loss.why_idle(key.removeprefix(_LOSS))
    if key.startswith(_TASKS):
        return config.train.tasks.why_idle(key.removeprefix(_TASKS))
    return _why_critic_idle(key, algorithm) or _why_engine_idle(key, config.engine.name)


def _why_critic_idle(key: str, algorithm: AlgorithmOptions) -> str | None:
    has_critic = algorithm.advantage.baseline == "critic"
    if key.startswith(_CRITIC):
        if not has_critic:
            return f"advantage.baseline={algorithm.advantage.baseline} has no critic; advantage.baseline=critic has one"
        is_tree = algorithm.sampler.mode != "parallel"
        return algorithm.critic.why_idle(key.removeprefix(_CRITIC), is_tree=is_tree)
    if has_critic and key == "algorithm.advantage.scale":
        return "advantage.baseline=critic compares with no group; critic.whiten scales its advantages"
    return None


def _why_engine_idle(key: str, engine: str) -> str | None:
    if key.startswith(("engine.vllm.", "engine.adapters", "engine.restarts", "engine.cpu_lora")) and engine != "vllm":
        return "only engine=vllm has it"
    if key.startswith("engine.remote.") and engine not in ("openai", "vllm_server"):
        return "only engine=openai and engine=vllm_server have it"
    if key == "engine.remote.shared_dir" and engine != "vllm_server":
        return "only engine=vllm_server, to which adapters are published, has it"
    if key.startswith("model.max_batch") and engine != "transformers":
        return f"engine={engine} has its own bounds"
    return None


_ALONE = ("algorithm.reward.alpha", "algorithm.reward.failure")
_CRITIC = "algorithm.critic."
_EXPERIENCE = "algorithm.experience."
_LOSS = "algorithm.loss."
_PREFERENCE = "algorithm.preference."
_TASKS = "train.tasks."
_UNCERTAINTY = "algorithm.advantage.uncertainty."
_WEIGHTS = (
    *("algorithm.loss.", "algorithm.advantage.", "algorithm.policy", "learner.", "train.canary"),
    *("model.lora.", "model.adapters"),
)
_TREE_ONLY = tuple(f"algorithm.sampler.{name}" for name in ("lookahead", "continuations", "commit_best"))
