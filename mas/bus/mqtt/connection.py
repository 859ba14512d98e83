"""The connection to the broker, made again whenever it breaks.

Each one is a new client with nothing remembered: what was on its way is queried for by the sender, which knows what
arrived. Leaves out on purpose: the broker's queues for absent clients.
"""

import asyncio
import contextlib
import math
import random
from collections.abc import Callable

import aiomqtt
from aiomqtt.exceptions import MqttConnectError

from mas.bus.mqtt.client import NOT_AUTHORISED, REFUSED, Acknowledge, Client
from mas.bus.mqtt.options import PASSWORD, Broker, MqttOptions
from mas.core.errors import Denied, Unreachable

_BEHIND = 1_000  # packets
_LONGEST_S = 2**32 - 1  # that MQTT can say
_BAD_LOGIN = frozenset({134, NOT_AUTHORISED})


class Connection:
    """A connection that is there from `open` to `close`, with short gaps.

    Args:
        identity: the client's name; a broker that still holds an older connection of that name ends it.
        will: topic that the broker publishes an empty retained payload to when the connection breaks.
    """

    def __init__(self, broker: Broker, options: MqttOptions, *, identity: str, will: str) -> None:
        self.reconnects = 0
        self.longest: int | None = None  # bytes of a packet that the broker takes; None: it sets no limit
        self._broker, self._options, self._identity = broker, options, identity
        self._will = will
        self._filters: dict[str, int] = {}
        self._client: Client | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._is_missed = False
        self.noticed: Callable[[bool], object] = lambda is_up: None
        """Called with False when the connection is lost, and with True when it is there again."""

    @property
    def is_up(self) -> bool:
        return self._client is not None

    @property
    def is_behind(self) -> bool:
        """Whether more waits to be written than what need not arrive should add to."""
        return self._client is not None and self._client.unwritten >= _BEHIND

    async def open(self, received: Callable[[str, bytes], None], connected: Callable[[], object]) -> None:
        """Connect, and keep connected until `close`.

        Args:
            received: called with topic and payload of what comes in.
            connected: called when there is a new connection, and everything subscribed is subscribed again.

        Raises:
            Unreachable: no broker answers there, or it refuses the name or the password.
        """
        self._received, self._connected = received, connected
        self._client = client = await self._connect()
        self.longest = client.longest
        self._keeping = asyncio.create_task(self._keep(client), name=f"mqtt connection {self._identity}")

    async def close(self) -> None:
        """Disconnect; the will is not published."""
        if self._keeping is None:
            return
        self._keeping.cancel()
        await asyncio.wait([self._keeping])
        self._keeping = None

    def publish(
        self,
        topic: str,
        payload: bytes,
        *,
        qos: int = 1,
        retain: bool = False,
        remaining_s: float | None = None,
        acknowledge: Acknowledge | None = None,
    ) -> bool:
        """Send without waiting; False: there is no connection. `acknowledge` is not called if the connection breaks.

        `qos`: 1, or 0 for what its receiver queries for when it does not come.
        `remaining_s`: after this many seconds the broker need not deliver it any more; None: it always does.
        """
        expiry_s = None if remaining_s is None or remaining_s > _LONGEST_S else max(1, math.ceil(remaining_s))
        return self._client is not None and self._client.send(
            topic, payload, qos=qos, retain=retain, expiry_s=expiry_s, acknowledge=acknowledge
        )

    async def subscribe(self, topic: str, *, qos: int = 1) -> None:
        """Receive what matches the filter, now and after every reconnection; `qos` as in `publish`.

        Raises:
            Denied: the broker does not let this principal listen there.
        """
        self._filters[topic] = qos
        if self._client is None:
            return
        try:
            await self._subscribe(self._client, topic)
        except aiomqtt.MqttError:
            return  # the connection broke: the next one subscribes
        except BaseException:  # a cancelled call, too, must not subscribe at the next connection
            self._filters.pop(topic, None)
            raise

    async def unsubscribe(self, topic: str) -> None:
        """Receive it no more."""
        self._filters.pop(topic, None)
        if self._client is not None:
            with contextlib.suppress(aiomqtt.MqttError):
                await self._client.unsubscribe(topic, timeout=self._options.patience_s)

    def forget(self, topic: str) -> None:
        """As `unsubscribe`, without waiting for the broker."""
        self._filters.pop(topic, None)
        if self._client is not None:
            self._client.forget(topic)

    async def _subscribe(self, client: Client, topic: str) -> None:
        (reason,) = await client.subscribe(topic, qos=self._filters[topic], timeout=self._options.patience_s)
        code = reason if isinstance(reason, int) else reason.value
        if code >= REFUSED:
            raise Denied(
                f"the broker does not let {self._broker.principal!r} listen at {topic!r} (reason {code}): "
                "its access list must allow it"
            )

    async def _keep(self, client: Client) -> None:
        while True:
            try:
                await self._until_broken(client)
            finally:
                self._client = None
                await self._leave(client)
            self._notice(is_up=False)
            client = await self._connect_again()
            self.reconnects += 1

    async def _until_broken(self, client: Client) -> None:
        """Serve one connection to its end. What is subscribed meanwhile belongs to it, too."""
        try:
            subscribed: set[str] = set()
            while missing := [topic for topic in self._filters if topic not in subscribed]:
                for topic in missing:
                    await self._subscribe_again(client, topic)
                subscribed.update(missing)
            self._client = client
            self.longest = client.longest
            self._connected()
            self._notice(is_up=True)
            async for message in client.messages:  # ends with the connection: what comes in is taken before
                raise AssertionError(f"a message at {message.topic} was not taken where it came in")
        except aiomqtt.MqttError as error:
            cause = error.__cause__
            if isinstance(cause, Exception) and not isinstance(cause, aiomqtt.MqttError | OSError):
                asyncio.get_running_loop().call_exception_handler(
                    {"message": "what came from the broker broke the connection", "exception": cause}
                )

    def _notice(self, *, is_up: bool) -> None:
        """Say once that the connection is lost, and once that it is there again."""
        if self._is_missed is is_up:
            self._is_missed = not is_up
            self.noticed(is_up)

    async def _subscribe_again(self, client: Client, topic: str) -> None:
        if topic not in self._filters:
            return
        try:
            await self._subscribe(client, topic)
        except Denied as error:
            self._filters.pop(topic, None)
            asyncio.get_running_loop().call_exception_handler({"message": "no longer allowed", "exception": error})

    async def _leave(self, client: Client) -> None:
        try:
            async with asyncio.timeout(self._options.patience_s):
                await client.__aexit__(None, None, None)
        except (aiomqtt.MqttError, OSError, TimeoutError):
            return  # it was broken, or the broker does not answer
        finally:
            client.drop()

    async def _connect(self) -> Client:
        broker = self._broker
        client = Client(
            broker.host,
            broker.port,
            receive=self._received,
            username=broker.principal,
            password=broker.password,
            identifier=self._identity,
            will=aiomqtt.Will(self._will, payload=b"", qos=1, retain=True),
            timeout=self._options.patience_s,
            keepalive=self._options.keepalive_s,
            tls_context=broker.tls,
        )
        try:
            return await client.__aenter__()
        except BaseException as error:
            client.drop()
            if isinstance(error, MqttConnectError):
                raise Unreachable(self._refusal(error)) from error
            if isinstance(error, aiomqtt.MqttError | OSError | ValueError):
                raise Unreachable(f"no connection to the broker {broker}: {error}. {self._advice(error)}") from error
            raise

    async def _connect_again(self) -> Client:
        bound_s = self._options.backoff_s / 20
        while True:
            await asyncio.sleep(random.uniform(0, bound_s))
            try:
                return await self._connect()
            except Unreachable:
                bound_s = min(2 * bound_s, self._options.backoff_s)

    def _advice(self, error: Exception) -> str:
        """What may be wrong where no connection came about."""
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            return (
                "Give the CA file that vouches for it (`mas broker --tls` writes one to tls/ca.crt), and connect by "
                "the name that its certificate is for."
            )
        return f"Is it running there, and does it speak {'TLS' if self._broker.tls else 'without TLS'}?"

    def _refusal(self, error: MqttConnectError) -> str:
        code = error.rc if isinstance(error.rc, int) else getattr(error.rc, "value", None)
        if code in _BAD_LOGIN:
            given = "was given" if self._broker.password is not None else "was not set"
            return f"the broker {self._broker} refuses the user or the password ({PASSWORD} {given})"
        return f"the broker {self._broker} refuses the connection: {error}"
