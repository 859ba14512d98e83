"""Finds algorithms: those of mas, files, modules, and entry points `mas.algorithms` of other packages."""

from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from mas.algorithms.base import Algorithm
from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean
from mas.core.user_code import is_code, load_module

EXAMPLE = "path/file.py:NAME"
FORMER: dict[str, str] = {"hrpo": "action_grpo"}
"""Algorithms of mas by the names that they had before."""
SHIPPED: dict[str, str] = {
    "action_grpo": "mas.algorithms.action_grpo",
    "aepo": "mas.algorithms.aepo",
    "agent_rlvr": "mas.algorithms.agent_rlvr",
    "arpo": "mas.algorithms.arpo",
    "aspo": "mas.algorithms.aspo",
    "at2po": "mas.algorithms.at2po",
    "at_grpo": "mas.algorithms.at_grpo",
    "bnpo": "mas.algorithms.bnpo",
    "cispo": "mas.algorithms.cispo",
    "clip_delta": "mas.algorithms.clip_delta",
    "comas": "mas.algorithms.comas",
    "cory": "mas.algorithms.cory",
    "dapo": "mas.algorithms.dapo",
    "dpo": "mas.algorithms.dpo",
    "dr_grpo": "mas.algorithms.dr_grpo",
    "e_grpo": "mas.algorithms.e_grpo",
    "eapo": "mas.algorithms.eapo",
    "empg": "mas.algorithms.empg",
    "epo": "mas.algorithms.epo",
    "flow_grpo": "mas.algorithms.flow_grpo",
    "gdpo": "mas.algorithms.gdpo",
    "gigpo": "mas.algorithms.gigpo",
    "gmpo": "mas.algorithms.gmpo",
    "gpg": "mas.algorithms.gpg",
    "grpo_roc": "mas.algorithms.grpo_roc",
    "gspo": "mas.algorithms.gspo",
    "hi_agent": "mas.algorithms.hi_agent",
    "hiersearch": "mas.algorithms.hiersearch",
    "igpo": "mas.algorithms.igpo",
    "malt": "mas.algorithms.malt",
    "matpo": "mas.algorithms.matpo",
    "mlpo": "mas.algorithms.mlpo",
    "mmoa_rag": "mas.algorithms.mmoa_rag",
    "opo": "mas.algorithms.opo",
    "oprl": "mas.algorithms.oprl",
    "owl": "mas.algorithms.owl",
    "parallel_grpo": "mas.algorithms.parallel_grpo",
    "pass_at_k": "mas.algorithms.pass_at_k",
    "pilotrl": "mas.algorithms.pilotrl",
    "poad": "mas.algorithms.poad",
    "ppo": "mas.algorithms.ppo",
    "rae": "mas.algorithms.rae",
    "re_rest": "mas.algorithms.re_rest",
    "reinforce_pp": "mas.algorithms.reinforce_pp",
    "reinforce_pp_baseline": "mas.algorithms.reinforce_pp_baseline",
    "replan": "mas.algorithms.replan",
    "retroformer": "mas.algorithms.retroformer",
    "reward_stack": "mas.algorithms.reward_stack",
    "rise": "mas.algorithms.rise",
    "rloo": "mas.algorithms.rloo",
    "s_ppo": "mas.algorithms.s_ppo",
    "sapo": "mas.algorithms.sapo",
    "scaling_inter": "mas.algorithms.scaling_inter",
    "search_self_play": "mas.algorithms.search_self_play",
    "self_redteam": "mas.algorithms.self_redteam",
    "single_grpo": "mas.algorithms.single_grpo",
    "spa_rl": "mas.algorithms.spa_rl",
    "spiral": "mas.algorithms.spiral",
    "srgpo": "mas.algorithms.srgpo",
    "st_ppo": "mas.algorithms.st_ppo",
    "stratified_grpo": "mas.algorithms.stratified_grpo",
    "tool_learner": "mas.algorithms.tool_learner",
    "tool_rl": "mas.algorithms.tool_rl",
    "training_free": "mas.algorithms.training_free",
    "turn_ppo": "mas.algorithms.turn_ppo",
    "waltzrl": "mas.algorithms.waltzrl",
}
"""Those of mas: name -> module, which has it as `algorithm`."""


def installed() -> dict[str, str]:
    """Name -> place of the algorithms that other packages bring."""
    return {point.name: point.value for point in entry_points(group="mas.algorithms")}


def find_algorithm(name: str) -> Algorithm[Any]:
    """The algorithm of a name: one of mas, `path/file.py`, `path/file.py:NAME`, `package.module:NAME`, or an entry
    point's.

    A file's name alone is enough where the file has one algorithm.

    Raises:
        ConfigError: there is no such file, module or entry point, it cannot be imported, or it has no such algorithm.
    """
    if name in SHIPPED:
        own: Algorithm[Any] = import_module(SHIPPED[name]).algorithm
        return own
    offered = installed()
    place = offered.get(name, name)
    if not is_code(place):
        raise ConfigError(f"no algorithm {name!r} comes with an installed package. {did_you_mean(name, offered)}")
    what = f"algorithm {name!r}"
    path, mark, attribute = (place, "", "") if place.endswith(".py") else place.rpartition(":")
    if not path or (mark and not attribute.isidentifier()):
        raise ConfigError(f"{what}: write path/file.py, {EXAMPLE} or package.module:NAME")
    found = {
        key: value
        for key, value in vars(load_module(what, path, EXAMPLE)).items()
        if isinstance(value, Algorithm) and not key.startswith("_")
    }
    if attribute in found:
        return found[attribute]
    if attribute or not found:
        wanted = f"no algorithm {attribute!r}" if attribute else "no algorithm"
        raise ConfigError(
            f"{what}: {path} has {wanted}. {did_you_mean(attribute, found)} "
            "One is made by mas.algorithms.Algorithm: see docs/own_algorithm.md"
        )
    if len(found) > 1:
        raise ConfigError(f"{what}: {path} has {len(found)} algorithms; write one of {_places(path, found)}")
    return next(iter(found.values()))


def label_of(name: str) -> str:
    """What an algorithm is called in files and curves: the name of its file, or of what is in a module."""
    if name.endswith(".py"):
        return Path(name).stem
    return name.rpartition(":")[2]


def _places(path: str, found: dict[str, Algorithm[Any]]) -> str:
    return ", ".join(f"{path}:{name}" for name in sorted(found))
