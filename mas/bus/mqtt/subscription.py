"""A subscription of a bus over MQTT: one of the local bus, announced to the other processes while it lasts."""

from collections.abc import Callable
from typing import Self

from mas.bus.in_flight import LocalSubscription
from mas.bus.mqtt.node import MqttNode
from mas.core.errors import Closed
from mas.core.messages import Envelope


class MqttSubscription:
    """A subscription; an async context manager that listens while it is entered.

    Args:
        local: the subscription of the local bus.
        node: announces it to the other processes.
    """

    def __init__(self, local: LocalSubscription, *, node: MqttNode) -> None:
        self.address = local.address
        self._local, self._node = local, node
        self._has_withdrawn = False

    async def __aenter__(self) -> Self:
        await self._local.__aenter__()
        try:
            await self._node.routes.listen(self.address, self._local.principal)
        except BaseException as error:  # a cancelled entry, too, must not leave the local subscription open
            await self._local.__aexit__(type(error), error, error.__traceback__)
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        try:
            if not self._has_withdrawn:
                await self._node.routes.leave(self.address)
        finally:
            if self._has_withdrawn:
                self._node.routes.drained(self.address)
            await self._local.__aexit__(*error)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Envelope:
        try:
            return await self.receive()
        except Closed:
            raise StopAsyncIteration from None

    async def receive(self) -> Envelope:
        return await self._local.receive()

    def done(self, envelope: Envelope, *, effect: bytes | None = None) -> None:
        """Handled; see `Subscription.done`. `effect`: see `LocalSubscription.done`; its sender hears of it afterwards.

        Raises:
            BusError: this open subscription does not hold the message.
            JournalError: an effect of a request, or of a message on a bus without a journal.
        """
        with self._node.together():
            self._local.done(envelope, effect=effect)

    def nack(
        self, envelope: Envelope, *, delay_s: float = 0.0, cause: str = "given back", is_tried: bool = True
    ) -> bool:
        """Give it back, to be delivered again in this process; see `Subscription.nack`.

        After as many attempts as the bus allows, those in other processes among them, it is a dead letter here.
        """
        return self._local.nack(envelope, delay_s=delay_s, cause=cause, is_tried=is_tried)

    def reject(self, envelope: Envelope, *, cause: str) -> None:
        self._local.reject(envelope, cause=cause)

    async def withdraw(self) -> None:
        """Take nothing new; see `Subscription.withdraw`. Queries for what is in flight still find it here."""
        if self._has_withdrawn:
            return
        self._has_withdrawn = True
        try:
            await self._node.routes.withdraw(self.address)
        finally:
            await self._local.withdraw()

    async def heard(self) -> None:
        """Wait until answers were confirmed; see `Subscription.heard`."""
        await self._node.until_confirmed()

    def on_abandoned(self, envelope: Envelope, call: Callable[[], object]) -> None:
        """Call once when the answer is not awaited any more; see `Subscription.on_abandoned`."""
        self._local.on_abandoned(envelope, call)
