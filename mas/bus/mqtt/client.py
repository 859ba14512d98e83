"""One connection to an MQTT 5 broker, driven by aiomqtt in the event loop."""

import asyncio
import math
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import aiomqtt
from paho.mqtt.client import Client as Paho
from paho.mqtt.client import MQTTMessage
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

Acknowledge = Callable[[int], None]
"""Called with the broker's reason code for one publication: 0 taken, 16 no subscriber, 128 and above refused."""
NOBODY, REFUSED, NOT_AUTHORISED, TOO_LONG = 16, 128, 135, 149
_NO_DELAY = (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
_READS = 64
"""Messages that are taken at once before others have their turn."""
T = TypeVar("T")


class Client(aiomqtt.Client):
    """aiomqtt's client, with a callback for every packet that comes in.

    aiomqtt hides the reason code of a publication, which says whether there is a subscriber; its queue and `publish`
    cost several tasks per message, and it wakes the event loop through a pipe for each. What it is here for: driving
    the protocol in the event loop.
    """

    def __init__(self, host: str, port: int, *, receive: Callable[[str, bytes], None], **options: Any) -> None:
        super().__init__(host, port, protocol=aiomqtt.ProtocolVersion.V5, socket_options=(_NO_DELAY,), **options)
        self._client.disable_logger()  # a lost connection is an error here, and need not be on the terminal as well
        self.longest: int | None = None
        self._receive = receive
        self._acknowledge: dict[int, Acknowledge] = {}
        self._is_write_due = False
        self._received = 0

    def send(
        self,
        topic: str,
        payload: bytes,
        *,
        qos: int,
        retain: bool,
        expiry_s: int | None,
        acknowledge: Acknowledge | None,
    ) -> bool:
        """Publish without waiting; False: the connection is broken."""
        properties = None
        if expiry_s is not None:
            properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
            properties.MessageExpiryInterval = expiry_s
        sent = self._client.publish(topic, payload, qos, retain, properties)
        if sent.rc != 0:
            return False
        if acknowledge is not None:
            self._acknowledge[sent.mid] = acknowledge
        return True

    @property
    def unwritten(self) -> int:
        """Packets that the socket has not taken yet."""
        return len(self._client._out_packet)

    def forget(self, topic: str) -> None:
        self._client.unsubscribe(topic)

    def drop(self) -> None:
        """Close the socket, which aiomqtt leaves open after a failed connection."""
        self._client._sock_close()

    async def _wait_for(self, fut: Awaitable[T], timeout: float | None) -> T:  # noqa: ASYNC109 - aiomqtt's own
        """As aiomqtt's own, but a cancellation that comes together with the broker's answer counts: `asyncio.wait_for`
        of Python 3.11 loses it, and its caller waits for ever."""
        limit_s = self.timeout if timeout is None else timeout
        try:
            async with asyncio.timeout(None if limit_s == math.inf else limit_s):
                return await fut
        except TimeoutError:
            raise aiomqtt.MqttError("the broker does not answer in time") from None

    def _read(self) -> None:
        """Take all that has come, up to a bound: what it makes this process say then goes together."""
        try:
            for _ in range(_READS):
                received, sock = self._received, self._client.socket()
                self._client.loop_read()
                if self._received == received and not _is_pending(sock):
                    return
            if _is_pending(self._client.socket()):  # the socket has nothing more to wake the event loop with
                self._loop.call_soon(self._read)
        except Exception as error:  # noqa: BLE001 - whatever it is, this connection is over
            if not self._disconnected.done():
                self._disconnected.set_exception(error)

    def _write(self) -> None:
        """Write what there is, and the rest when the socket has room for it."""
        self._is_write_due = False
        paho = self._client
        sock = paho.socket()
        if sock is None:
            return
        try:
            paho.loop_write()
        except OSError as error:
            if not self._disconnected.done():
                self._disconnected.set_exception(error)
            return
        if paho.socket() is sock and paho.want_write():
            self._loop.add_writer(sock.fileno(), self._write)

    def _on_socket_open(self, client: Paho, userdata: Any, sock: Any) -> None:
        super()._on_socket_open(client, userdata, sock)
        self._loop.call_soon_threadsafe(self._loop.add_reader, sock.fileno(), self._read)  # in place of its own

    def _on_socket_register_write(self, client: Paho, userdata: Any, sock: Any) -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:  # paho connects in a thread
            super()._on_socket_register_write(client, userdata, sock)
            return
        if not self._is_write_due:
            self._is_write_due = True
            self._loop.call_soon(self._write)

    def _on_connect(self, client: Paho, userdata: Any, flags: Any, reason: Any, properties: Any = None) -> None:
        self.longest = getattr(properties, "MaximumPacketSize", None)
        super()._on_connect(client, userdata, flags, reason, properties)

    def _on_message(self, client: Paho, userdata: Any, message: MQTTMessage) -> None:
        self._received += 1
        self._receive(message.topic, bytes(message.payload))

    def _on_unsubscribe(self, client: Paho, userdata: Any, mid: int, *more: Any) -> None:
        if mid in self._pending_unsubscribes:
            super()._on_unsubscribe(client, userdata, mid, *more)

    def _on_publish(self, client: Paho, userdata: Any, mid: int, reason: ReasonCode, properties: Any) -> None:
        acknowledge = self._acknowledge.pop(mid, None)
        if acknowledge is not None:
            acknowledge(reason.value)


def _is_pending(sock: Any) -> bool:
    """Whether TLS has taken from the socket what was not read yet."""
    return isinstance(sock, ssl.SSLSocket) and sock.pending() > 0
