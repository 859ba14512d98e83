"""Both engines against the contract."""

import pytest
from conftest import BaseFor
from loud import loud_adapter

from mas.core.engine import AdapterRef, Engine
from mas.core.seeds import derive_seed
from mas.serving.transformers_engine import TransformersEngine
from mas.testing.engine import EngineContract
from mas.testing.scripted import ScriptedEngine


class TestTransformersEngine(EngineContract):
    @pytest.fixture(autouse=True)
    def _base(self, base_for: BaseFor) -> None:
        self.base = base_for("plan_path")

    async def make_engine(self) -> Engine:
        engine = TransformersEngine(self.base)
        await engine.store.publish("a", loud_adapter(self.base, 1))
        await engine.store.publish("b", loud_adapter(self.base, 2))
        return engine

    async def publish_again(self, engine: Engine) -> AdapterRef:
        assert isinstance(engine, TransformersEngine)
        return (await engine.store.publish("a", loud_adapter(self.base, 3))).ref


class TestScriptedEngine(EngineContract):
    draws = False

    async def make_engine(self) -> Engine:
        def answer(prompt: str, adapter: str | None, seed: int) -> str:
            return f"{derive_seed(prompt, adapter or '-', seed) % 100}"

        return ScriptedEngine(answer, ("a", "b"))

    async def publish_again(self, engine: Engine) -> AdapterRef:
        assert isinstance(engine, ScriptedEngine)
        return engine.publish("a")
