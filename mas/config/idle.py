"""Keys that change nothing beside the other values: refused where somebody sets them, since they would mislead."""

from mas.config.options import Config


def why_idle(key: str, config: Config) -> str | None:
    """Why a dotted key has no effect in this configuration; None: it has one."""
    algorithm, loss = config.algorithm, config.algorithm.loss
    is_tree = algorithm.sampler.mode == "tree"
    if key in _TREE_ONLY and not is_tree:
        return "algorithm.sampler.mode=parallel plays whole episodes; only mode=tree has decisions to look ahead from"
    if key == "algorithm.sampler.continuations" and algorithm.sampler.lookahead == "action":
        return "with lookahead=action nothing is played on, so there is nothing to average"
    if key == "algorithm.advantage.single" and is_tree:
        return "tree sampling has no group of one"
    if key == "algorithm.loss.kl_estimator" and not loss.kl:
        return "algorithm.loss.kl is 0"
    if key == "algorithm.loss.max_length" and loss.aggregation != "seq_mean_token_sum_norm":
        return "only algorithm.loss.aggregation=seq_mean_token_sum_norm divides by it"
    if (
        key.startswith(("engine.vllm.", "engine.adapters", "engine.restarts", "engine.cpu_lora"))
        and config.engine.name != "vllm"
    ):
        return "only engine=vllm has it"
    if key == "model.max_batch" and config.engine.name != "transformers":
        return f"engine={config.engine.name} has its own bounds"
    if key.startswith("model.tiny.") and config.model.path != "tiny":
        return f"model.path is {config.model.path!r}, not the tiny base"
    return None


_TREE_ONLY = tuple(f"algorithm.sampler.{name}" for name in ("lookahead", "continuations", "commit_best"))
