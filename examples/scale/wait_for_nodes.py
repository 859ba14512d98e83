"""Waits until the Ray at an address has so many nodes: python wait_for_nodes.py HOST:PORT NODES [SECONDS].

With 0 nodes it waits until its head listens.
"""

import socket
import sys
import time

import ray


def is_listening(address: str) -> bool:
    """Whether anything accepts connections there."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError:
        return False
    return True


def main(address: str, wanted: int, limit_s: float = 600.0) -> str:
    """Wait; returns what is missing when time is up, or nothing."""
    end = time.monotonic() + limit_s
    while not is_listening(address):
        if time.monotonic() > end:
            return f"no Ray listens at {address} after {limit_s:g} s"
        time.sleep(1)
    if not wanted:
        return ""
    ray.init(address=address, log_to_driver=False)
    while (found := sum(node["Alive"] for node in ray.nodes())) < wanted:
        if time.monotonic() > end:
            return f"{found} of {wanted} nodes have joined the Ray at {address} after {limit_s:g} s"
        time.sleep(1)
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), *map(float, sys.argv[3:4])) or None)
