"""vLLM servers as others run them: processes of their own with a tiny base, which load adapters while they run."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request

from mas.config.options import ModelOptions, TinyOptions

WIDE = ModelOptions(tiny=TinyOptions(head_size=32, steps=20, habit_steps=5, batch=16))
"""vLLM's CPU kernels need heads of 32."""
SHORT = (
    *("train.tasks_per_step=2", "train.eval_tasks=2", "train.eval_every=0", "algorithm.sampler.candidates=3"),
    *("model.tiny.steps=20", "model.tiny.habit_steps=5", "model.tiny.batch=16"),
)
"""Overrides of a short training on that base."""
_FLAGS = (
    *("--enable-lora", "--max-loras", "8", "--max-cpu-loras", "32", "--max-lora-rank", "8"),
    *("--logprobs-mode", "processed_logprobs", "--generation-config", "vllm"),
    *("--served-model-name", "tiny", "--dtype", "float32", "--max-model-len", "256", "--max-num-seqs", "64"),
    "--enforce-eager",
)
_ENVIRONMENT = {
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
}


class VllmServer:
    """A vLLM server on a port of this machine. The command `vllm serve` cannot be used: vLLM's CPU build has none."""

    def __init__(self, model: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self.model = model
        self.start()

    def start(self) -> None:
        words = ["--model", self.model, "--host", "127.0.0.1", "--port", str(self.port), *_FLAGS]
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "vllm.entrypoints.openai.api_server", *words],
            env=os.environ | _ENVIRONMENT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    async def wait(self) -> None:
        """Until it answers."""
        async with asyncio.timeout(1800):  # half a minute on an idle machine
            while await asyncio.to_thread(self.served) is None:
                assert self.process.poll() is None, "the server ended"
                await asyncio.sleep(0.5)

    def served(self) -> set[str] | None:
        """The names that it lists, of its base and its adapters; None: it does not answer."""
        try:
            with urllib.request.urlopen(f"{self.url}/models", timeout=30) as answer:
                return {model["id"] for model in json.load(answer)["data"]}
        except (urllib.error.URLError, OSError):
            return None

    def stop(self) -> None:
        """Kill all its processes."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
