"""A subscription of a bus over MQTT: one of the local bus, announced to the other processes while it lasts."""

from typing import Self

from mas.bus.memory import LocalSubscription, MemoryBus
from mas.bus.mqtt.node import MqttNode
from mas.core.messages import Envelope


class MqttSubscription(LocalSubscription):
    """A subscription; an async context manager that listens while it is entered.

    What it gives back is delivered again in this process. After as many attempts as the bus allows, those in other
    processes among them, it is a dead letter here.

    Args:
        local: the local bus.
        node: announces it to the other processes.
    """

    def __init__(self, local: MemoryBus, address: str, *, principal: str | None, credit: int, node: MqttNode) -> None:
        super().__init__(local, address, principal=principal, credit=credit)
        self._node = node
        self._has_withdrawn = False

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        try:
            await self._node.routes.listen(self.address, self.principal)
        except BaseException as error:  # a cancelled entry, too, must not leave the local subscription open
            await super().__aexit__(type(error), error, error.__traceback__)
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        try:
            if not self._has_withdrawn:
                await self._node.routes.leave(self.address)
        finally:
            if self._has_withdrawn:
                self._node.routes.drained(self.address)
            await super().__aexit__(*error)

    def done(self, envelope: Envelope, *, effect: bytes | None = None) -> None:
        """Handled; see `LocalSubscription.done`. Its sender hears of it after its effect is written."""
        with self._node.together():
            super().done(envelope, effect=effect)

    async def withdraw(self) -> None:
        """Take nothing new; see `Subscription.withdraw`. Queries for what is in flight still find it here."""
        if self._has_withdrawn:
            return
        self._has_withdrawn = True
        try:
            await self._node.routes.withdraw(self.address)
        finally:
            await super().withdraw()

    async def heard(self) -> None:
        """Wait until answers were confirmed; see `Subscription.heard`."""
        await self._node.until_confirmed()
