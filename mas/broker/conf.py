"""The text of mosquitto.conf."""

import os
from pathlib import Path

from mas.broker.certificates import TlsFiles
from mas.broker.options import BrokerOptions

_WORDS = {False: "false", True: "true"}


def conf_text(options: BrokerOptions, tls: TlsFiles | None, *, acl: Path, users: Path) -> str:
    """The configuration for mosquitto 2. A persistent broker keeps its database beside the ACL file."""
    lines = [
        "# Written by `mas broker`.",
        f"listener {options.listening_port} {options.host}",
        f"max_connections {options.max_connections}",
    ]
    if tls is not None:
        lines += [f"certfile {tls.cert}", f"keyfile {tls.key}"]
        lines += [f"cafile {tls.ca}"] if tls.ca is not None else []
    lines += [
        "",
        "allow_anonymous false",
        f"password_file {users}",
        f"acl_file {acl}",
        "",
        "# Without it requests and their answers wait for each other's delayed acknowledgements, 40 ms at a time.",
        "set_tcp_nodelay true",
        f"max_packet_size {options.max_packet_bytes}",
        f"max_inflight_messages {options.max_inflight_messages}",
        f"max_queued_messages {options.max_queued_messages}",
        f"max_queued_bytes {options.max_queued_bytes}",
        "# Retained messages have no limit of their own: whoever may write to a topic may leave one there.",
        f"memory_limit {options.max_memory_bytes}",
        "# Sessions of processes that never come back would fill their queues for ever.",
        "persistent_client_expiration 1h",
        "",
        f"persistence {_WORDS[options.is_persistent]}",
        *([f"persistence_location {acl.parent}/"] if options.is_persistent else []),
        "log_dest stderr",
        *(f"log_type {kind}" for kind in ("error", "warning", "notice")),
        "log_timestamp_format %Y-%m-%dT%H:%M:%S",
    ]
    if os.geteuid() == 0:
        lines += ["# As another user it could not read these files.", "user root"]
    return "\n".join(lines) + "\n"
