"""mosquitto as a child: started, waited for until it listens, told to end when this process is.

Leaves out on purpose: starting it again when it dies, which is the work of whatever supervises this process.
"""

import ipaddress
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from mas.broker.certificates import TlsFiles
from mas.broker.files import BrokerFiles
from mas.broker.options import BrokerOptions
from mas.core.errors import ConfigError, RunError

_ELSEWHERE = ("/usr/sbin", "/usr/local/sbin", "/usr/local/bin", "/opt/homebrew/sbin")
"""Where packages put servers; users who are not root often lack these in PATH."""
_START_S = 15.0
_POLL_S = 0.05
_CONNECT_S = 1.0
_PASSED_ON = {signal.SIGINT: signal.SIGINT, signal.SIGTERM: signal.SIGTERM, signal.SIGHUP: signal.SIGTERM}
"""What the child gets for a signal. A terminal that closes ends it: SIGHUP alone would only make it read its files."""


def find_mosquitto() -> str:
    """The path of a mosquitto of version 2 or later.

    Raises:
        ConfigError: there is none.
    """
    path = shutil.which("mosquitto", path=os.pathsep.join((os.environ.get("PATH", os.defpath), *_ELSEWHERE)))
    if path is None:
        raise ConfigError(
            "mosquitto is not installed: apt-get install mosquitto, dnf install mosquitto or brew install mosquitto; "
            "--write-only writes the files for a mosquitto elsewhere"
        )
    shown = subprocess.run([path, "-h"], capture_output=True, text=True, check=False).stdout
    version = re.search(r"mosquitto version (\d+)\.(\d+)", shown)
    if version is None or int(version[1]) < 2:
        raise ConfigError(f"{path} is mosquitto {version[0] if version else 'of unknown version'}; 2.0 or later needed")
    return path


def check_port(options: BrokerOptions) -> None:
    """Refuse an address that cannot be listened at, in words that say which option to change.

    Raises:
        ConfigError: the port is taken or may not be had, or the address is not of this machine.
    """
    for address in options.addresses():
        family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((str(address), options.listening_port))
            except OSError as error:
                raise ConfigError(
                    f"{options.host}:{options.listening_port} cannot be listened at: {error.strerror}. "
                    "Choose another --port or --host"
                ) from error


def run_mosquitto(mosquitto: str, files: BrokerFiles, options: BrokerOptions, on_ready: Callable[[], object]) -> int:
    """Run mosquitto until it ends or a signal ends it; its exit code, 128 + N where signal N killed it.

    Args:
        on_ready: called once it accepts connections.

    Raises:
        RunError: it failed, or kept still, before it listened.
    """
    with _started([mosquitto, "-c", str(files.conf)]) as process:
        is_ready = _is_listening(process, options, files.tls)
        if is_ready:
            on_ready()
        elif process.poll() is None:
            raise RunError(f"mosquitto did not listen at port {options.listening_port} within {_START_S:.0f} s")
        code = process.wait()
    if code > 0 and not is_ready:
        raise RunError(f"mosquitto ended with code {code} before it listened; what it wrote above says why")
    return code if code >= 0 else 128 - code


@contextmanager
def _started(words: list[str]) -> Iterator["subprocess.Popen[bytes]"]:
    """A child in a session of its own, so that a signal from the terminal comes once, through here."""
    children: list[subprocess.Popen[bytes]] = []
    early: list[int] = []

    def pass_on(number: int, frame: FrameType | None) -> None:
        if children:
            children[0].send_signal(_PASSED_ON[signal.Signals(number)])
        else:
            early.append(number)

    before = {number: signal.signal(number, pass_on) for number in _PASSED_ON}
    try:
        with subprocess.Popen(words, stdin=subprocess.DEVNULL, start_new_session=True) as process:
            children.append(process)
            for number in early:
                pass_on(number, None)
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.terminate()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_listening(process: "subprocess.Popen[bytes]", options: BrokerOptions, tls: TlsFiles | None) -> bool:
    """Wait until a connection is accepted; False: the process ended, or time is up."""
    address = options.addresses()[0]
    if address.is_unspecified:
        address = ipaddress.ip_address("::1" if address.version == 6 else "127.0.0.1")
    context = None if tls is None else ssl.create_default_context(cafile=tls.ca)
    limit = time.monotonic() + _START_S
    while process.poll() is None and time.monotonic() < limit:
        try:
            with socket.create_connection((str(address), options.listening_port), timeout=_CONNECT_S) as connection:
                if context is not None:
                    _greet(connection, context, options.reached)
        except OSError:
            time.sleep(_POLL_S)
        else:
            return True
    return False


def _greet(connection: socket.socket, context: ssl.SSLContext, name: str) -> None:
    """A TLS handshake and a farewell, without which mosquitto would report an error."""
    with context.wrap_socket(connection, server_hostname=name) as secured, suppress(OSError):
        secured.unwrap()
