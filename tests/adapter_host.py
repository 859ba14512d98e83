"""A host of adapters that scores by their weights alone, so that a test knows what the canary has to find."""

import asyncio
from typing import Any

from mas.core.errors import EngineError
from mas.serving.adapter_weights import AdapterWeights
from mas.serving.model_sources import Origin
from mas.serving.publication import AdapterVersion, Probe

PROMPT, COMPLETION = (5, 6, 7), (8, 9, 10)


class Host:
    """A host of files that scores by the first tensor of a version, and can be told to fail."""

    dtype = "float32"
    origin = Origin("base")

    def __init__(self, *, reads_files: bool = True) -> None:
        self.reads_files = reads_files
        self.loaded: dict[int, AdapterVersion] = {}
        self.refuses = False
        self.delivers = True

    async def load(self, version: AdapterVersion) -> None:
        await asyncio.sleep(0)
        if self.refuses:
            raise EngineError("no room")
        assert version.path is None or (version.path / "adapter_model.safetensors").is_file()
        previous = list(self.loaded.values())[-1:]
        self.loaded[version.number] = version if self.delivers or not previous else previous[0]

    async def unload(self, version: AdapterVersion) -> None:
        self.loaded.pop(version.number, None)

    async def score_version(self, version: AdapterVersion | None, prompt_ids: Any, completion_ids: Any) -> Any:
        value = 0.0 if version is None else score_of(self.loaded[version.number].weights)
        return (value,) * len(completion_ids)


def score_of(weights: AdapterWeights) -> float:
    return float(weights.parameters()[0].double().sum())


def probe_of(weights: AdapterWeights) -> Probe:
    return Probe(PROMPT, COMPLETION, (score_of(weights),) * 3)
