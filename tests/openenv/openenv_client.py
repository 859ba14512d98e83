"""Clients of OpenEnv's own package for the tests: `python openenv_client.py RELAY KUHN`, the addresses of two servers.
It needs openenv, no mas.

`rows`: an episode of a scenario with one seat, in words; `match`: two sessions of one game, each in a task of its own;
`loop`: the same in one loop, without waiting; `wrong`: what a session that is asked wrongly raises. JSON comes out.
`python openenv_client.py games ADDRESS`: games against whoever plays the other seat, as each seat in turn.
"""

import asyncio
import json
import sys

from openenv.core.generic_client import GenericEnvClient


def row(result):
    return {"observation": result.observation, "reward": result.reward, "done": result.done}


async def rows(address):
    async with GenericEnvClient(base_url=address) as client:
        told = [row(await client.reset(seed=3, episode_id="e1"))]
        told.append(await client.state())
        while not told[-1].get("done"):
            told.append(row(await client.step({"action": "nonsense"})))
        again = row(await client.reset(seed=3))
        return {"told": told, "again": again, "state": await client.state()}


async def seat(address, name, match, seed):
    async with GenericEnvClient(base_url=address) as client:
        told = [row(await client.reset(seed=seed, seat=name, match=match))]
        while not told[-1]["done"]:
            told.append(row(await client.step({"action": told[-1]["observation"]["legal"][-1]})))
        return told


async def match(address):
    games = [
        [seat(address, name, f"game-{number}", number) for name in ("player_0", "player_1")] for number in range(4)
    ]
    return await asyncio.gather(*(asyncio.gather(*game) for game in games))


async def loop(address):
    async with GenericEnvClient(base_url=address) as first, GenericEnvClient(base_url=address) as second:
        clients = {"player_0": first, "player_1": second}
        for name, client in clients.items():
            seen = (await client.reset(seed=1, seat=name, match="loop", wait=False)).observation
        order = []
        while seen["to_move"]:
            name = seen["to_move"][0]
            order.append(name)
            legal = (await clients[name].state())["legal"]
            seen = (await clients[name].step({"action": legal[0]})).observation
        return {"order": order, "states": [await client.state() for client in clients.values()]}


async def wrong(address):
    async with GenericEnvClient(base_url=address) as client:
        said = []
        for call in (
            lambda: client.step({"action": "x"}),
            lambda: client.reset(seat="nobody"),
            lambda: client.reset(seed=-1),
            lambda: client.reset(colour="red"),
            lambda: client.reset(match="m"),
        ):
            try:
                await call()
            except RuntimeError as error:
                said.append(str(error))
        await client.reset(seed=1)
        try:
            await client.step({"move": "x"})
        except RuntimeError as error:
            said.append(str(error))
        return {"said": said, "goes on": row(await client.step({"action": ""}))}


async def games(address):
    found = []
    async with GenericEnvClient(base_url=address) as client:
        for number in range(8):
            told = [row(await client.reset(seed=number, seat=f"player_{number % 2}"))]
            while not told[-1]["done"]:
                told.append(row(await client.step({"action": told[-1]["observation"]["legal"][0]})))
            found.append(told)
    return found


async def everything(relay, kuhn):
    return {
        "rows": await rows(relay),
        "match": await match(kuhn),
        "loop": await loop(kuhn),
        "wrong": await wrong(relay),
    }


if __name__ == "__main__":
    playing = games(sys.argv[2]) if sys.argv[1] == "games" else everything(*sys.argv[1:])
    print(json.dumps(asyncio.run(playing)))
