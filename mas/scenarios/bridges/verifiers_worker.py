"""A verifiers environment in a Python of its own: `python -P verifiers_worker.py TASKSET MOST MAX_TURNS OPTIONS`.

It imports verifiers and nothing of mas, which starts it. Lines of JSON come and go, for any number of episodes at once:

    {"tasks": [KEY, ...], "terms": [NAME, ...]}            out, once; or {"error": WHY}, and it ends
    {"begin": EPISODE, "task": NUMBER}                     in
    {"episode": EPISODE, "messages": [...], "tools": [...]}    out: the policy is asked
    {"act": EPISODE, "text": TEXT, "call": {...} or null}  in
    {"episode": EPISODE, "rewards": {NAME: VALUE}}         out: it is over; or "error": WHY
    {"drop": EPISODE}                                      in: nobody plays it any more

The environment is verifiers' own: its tasks, limits, tools, stops, rewards and judges. A harness of this file asks the
policy through the interception server as any harness does, and the client behind that server is the one that asks here.
"""

import asyncio
import json
import logging
import os
import sys
from contextlib import AsyncExitStack
from itertools import count
from typing import Any

import verifiers.v1 as vf
from openai import AsyncOpenAI
from verifiers.v1.clients import Client, EvalClientConfig, ModelContext
from verifiers.v1.dialects.chat import message_to_wire
from verifiers.v1.harnesses.null import NullHarness
from verifiers.v1.harnesses.utils.mcp import call_mcp, connect_mcp
from verifiers.v1.interception import server as interception
from verifiers.v1.runtimes import ProgramResult

__all__ = ["PolicyHarness"]
HARNESS = "mas_policy"


class PolicyHarness(NullHarness):
    """The chat loop of the null harness in this process: ask, call tools, until an answer calls none."""

    SUPPORTS_TOOL_INTERCEPTION = False

    async def setup(self, runtime: Any) -> None:
        """There is no program to install."""

    async def launch(
        self,
        ctx: Any,
        trace: Any,
        runtime: Any,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: Any,
        tool_interception_url: str | None = None,
    ) -> ProgramResult:
        system, prompt = self.resolve_prompt(data)
        messages: list[Any] = [] if not system else [{"role": "system", "content": system}]
        if isinstance(prompt, str):
            messages.append({"role": "user", "content": prompt})
        elif prompt is not None:
            messages.extend(message_to_wire(message) for message in prompt)
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(
                AsyncOpenAI(base_url=endpoint, api_key=secret, max_retries=0, timeout=None)
            )
            servers = {"mcpServers": {name: {"url": url} for name, url in mcp_urls.items()}}
            tools, dispatch, opened = await connect_mcp(servers, stack)
            more = {"tools": tools} if tools else {}
            while True:
                completion = await client.chat.completions.create(model=ctx.model, messages=messages, **more)
                message = completion.choices[0].message
                messages.append(message.model_dump(exclude_none=True))
                if not message.tool_calls:
                    return ProgramResult(exit_code=0, stdout="", stderr="")
                for call in message.tool_calls:
                    result = await _result(opened, dispatch, call)
                    messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


async def _result(opened: Any, dispatch: Any, call: Any) -> Any:
    name = call.function.name
    if name not in dispatch:
        return f"error: unknown tool {name!r}"
    try:
        return await call_mcp(opened, dispatch, name, json.loads(call.function.arguments))
    except Exception as error:  # noqa: BLE001 - what a tool raises is its result
        return f"error: {error}"


class PolicyClient(Client):
    """What stands behind the interception server: asks the parent process."""

    def __init__(self, worker: "EpisodeServer") -> None:
        self._worker = worker

    async def get_response(
        self, dialect: Any, body: Any, sampling: Any, session_id: Any = None, turn: Any = None, headers: Any = None
    ) -> Any:
        said = await self._worker.ask(session_id, body.get("messages", []), body.get("tools") or [])
        message: dict[str, Any] = {"role": "assistant", "content": said["text"]}
        if said.get("call"):
            function = {"name": said["call"]["name"], "arguments": json.dumps(said["call"]["arguments"])}
            call_id = f"call-{next(self._worker.numbers)}"
            message = {**message, "tool_calls": [{"id": call_id, "type": "function", "function": function}]}
        raw = {
            "id": "mas",
            "object": "chat.completion",
            "created": 0,
            "model": "policy",
            "choices": [
                {"index": 0, "finish_reason": "tool_calls" if said.get("call") else "stop", "message": message}
            ],
            "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
        }
        response = dialect.parse_response(dialect.validate_response(raw))
        response.raw = raw
        return response


class EpisodeServer:
    """One environment and its episodes. `out`: where lines are written."""

    def __init__(self, out: Any) -> None:
        self._out = out
        self.numbers = count()
        self._episodes: dict[int, asyncio.Task[None]] = {}
        self._owners: dict[str, int] = {}
        self._asked: dict[int, asyncio.Future[dict[str, Any]]] = {}

    def write(self, **line: Any) -> None:
        """Send a line to the parent."""
        self._out.write(json.dumps(line, default=str) + "\n")
        self._out.flush()

    async def ask(self, trace: str, messages: list[Any], tools: list[Any]) -> dict[str, Any]:
        """What the policy says to a conversation."""
        episode = self._owners[trace]
        answer = self._asked[episode] = asyncio.get_running_loop().create_future()
        self.write(episode=episode, messages=messages, tools=tools)
        said: dict[str, Any] = await answer
        return said

    async def serve(self, taskset: str, most: int, max_turns: int, options: dict[str, Any]) -> None:
        """Until the parent closes its end."""
        raw = {"taskset": {**options, "id": taskset}}
        config = vf.resolve_env_config(raw)
        roles = [name for name, value in config if isinstance(value, vf.AgentConfig)]
        if len(roles) != 1:
            raise ValueError(f"it has the agents {', '.join(roles)}, and a team plays one")
        agent = {"harness": {"id": HARNESS}, "runtime": {"type": "subprocess"}, "max_turns": max_turns}
        env = vf.load_environment(vf.resolve_env_config({**raw, roles[0]: agent}))
        tasks = list(env.taskset.take(most))
        if not tasks:
            raise ValueError("it has no tasks")
        names = [fn.__name__ for fn in tasks[0].hooks("reward")]
        names += [judge.reward_name for judge in tasks[0].plugged_judges()]
        async with env.serving():
            self.write(tasks=[task.key for task in tasks], terms=names)
            await self._read(env, tasks)

    async def _read(self, env: Any, tasks: list[Any]) -> None:
        loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(limit=1 << 26)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            order = json.loads(line)
            if "begin" in order:
                number = order["begin"]
                self._episodes[number] = loop.create_task(self._play(env, number, tasks[order["task"]]))
            elif "act" in order:
                if (asked := self._asked.pop(order["act"], None)) is not None and not asked.done():
                    asked.set_result(order)
            elif (task := self._episodes.pop(order["drop"], None)) is not None:
                task.cancel()
        for task in self._episodes.values():
            task.cancel()
        await asyncio.gather(*self._episodes.values(), return_exceptions=True)

    async def _play(self, env: Any, number: int, task: Any) -> None:
        context = ModelContext(
            model="policy", client=EvalClientConfig(base_url="http://127.0.0.1:9/v1", api_key_var="_")
        )
        traces: list[str] = []

        def own(trace: Any) -> None:
            traces.append(trace.id)
            self._owners[trace.id] = number

        try:
            episode = await env.run_episode(task, context, on_trace=own)
            errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
            if errors and not episode.ok:
                self.write(episode=number, error=f"{errors[0].type}: {errors[0].message}")
                return
            rewards = {
                name: reward.value
                for trace in episode.traces
                for name, reward in trace.rewards.items()
                if reward is not None
            }
            self.write(episode=number, rewards=rewards)
        except Exception as error:  # noqa: BLE001 - a taskset's code
            self.write(episode=number, error=f"{type(error).__name__}: {error}")
        finally:
            self._asked.pop(number, None)
            self._episodes.pop(number, None)
            for trace in traces:
                self._owners.pop(trace, None)


def main() -> None:
    """Serve what the command line names; nothing but lines of the protocol reaches the standard output."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    logging.getLogger("verifiers").setLevel(logging.ERROR)
    taskset, most, max_turns, options = sys.argv[1:]
    worker = EpisodeServer(out)
    sys.modules[HARNESS] = sys.modules["__main__"]
    interception.resolve_client = lambda config: PolicyClient(worker)
    try:
        asyncio.run(worker.serve(taskset, int(most), int(max_turns), json.loads(options)))
    except Exception as error:
        worker.write(error=f"{type(error).__name__}: {error}")
        raise


if __name__ == "__main__":
    main()
