"""All messages of one address: its subscriptions, those that wait for room, and the order of those with a key.

Order: a message is bound to the subscription that still holds an earlier one of its lane (source, key); while none
does, it goes to the subscription with the most free credit, in turn where they are equal. Messages wait in order of
acceptance: in `waiting` while any subscription may take them, in the `pinned` of one once their lane binds them to it.
Whenever a subscription has free credit, no message waits for it; `dispatch` keeps that so. A message given back
delays its lane: it and all later ones of the lane wait together until it is due, then they come first.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator

import msgspec

from mas.bus.in_flight import InFlightMessage, Queue, SubscriptionQueue


class Lane(msgspec.Struct, eq=False):
    """Which subscription the messages of one (source, key) are bound to, and how many of them."""

    subscription: SubscriptionQueue
    count: int = 0


class Delay(msgspec.Struct, eq=False):
    """A message that was given back, and what waits behind it, in order; delivered from `due` on."""

    due: float = -math.inf
    queue: Queue = msgspec.field(default_factory=OrderedDict)


class AddressQueue:
    """One address with at least one subscription.

    Args:
        principal: who reads at the address: the same for all its subscriptions.
        admit: asked before a message enters a queue; False: the message was settled otherwise, and counted.
    """

    def __init__(self, principal: str, *, admit: Callable[[InFlightMessage], bool]) -> None:
        self.principal = principal
        self.subscriptions: list[SubscriptionQueue] = []
        self.waiting: Queue = OrderedDict()
        self.has_deadlines = False
        self._admit = admit
        self._lanes: dict[tuple[str, str], Lane] = {}
        self._delays: dict[tuple[str, str] | int, Delay] = {}
        self._last = 0

    def offer(self, message: InFlightMessage) -> bool:
        """Put a message into a queue if one has room for it now; False: no room."""
        subscription = self._choose(message)
        if subscription is None:
            return False
        if self._admit(message):
            self._bind(message, subscription)
            subscription.push(message)
        return True

    def park(self, message: InFlightMessage) -> None:
        """Let a message wait for room."""
        lane = None if message.lane is None else self._lanes.get(message.lane)
        if message.lane in self._delays:
            message.put(self._delays[message.lane].queue)
        elif lane is None or self.waiting:
            message.put(self.waiting)
        else:
            self._bind(message, lane.subscription)
            message.put(lane.subscription.pinned)

    def withdraw(self, message: InFlightMessage) -> None:
        """Take a message that was not received out of its queue, and give its credit back."""
        subscription = message.subscription
        is_held = subscription is not None and message.place is subscription.queue
        message.lift()
        if is_held:
            self.release(message)
        elif subscription is not None:
            self._unbind(message)

    def release(self, message: InFlightMessage) -> None:
        """Give the credit of one message back, and serve what waited for it."""
        subscription = message.subscription
        if subscription is None or subscription not in self.subscriptions:
            return
        subscription.held -= 1
        self._unbind(message)
        if self.waiting or subscription.pinned:
            self._dispatch(subscription)

    def join(self, subscription: SubscriptionQueue) -> None:
        self.subscriptions.append(subscription)
        self._dispatch(subscription)

    def leave(self, subscription: SubscriptionQueue, again: list[InFlightMessage]) -> list[InFlightMessage]:
        """Remove a subscription; what it had not handed out, and `again`, goes to the others.

        Returns:
            The messages that no subscription is left to take, in order.
        """
        self.subscriptions.remove(subscription)
        self._last = 0
        self._lanes = {lane: bound for lane, bound in self._lanes.items() if bound.subscription is not subscription}
        messages = [*self.waiting.values(), *subscription.pinned.values(), *subscription.queue.values(), *again]
        if not self.subscriptions:
            messages += [message for delay in self._delays.values() for message in delay.queue.values()]
        for message in messages:
            message.lift()
            message.subscription = None
        messages.sort(key=lambda message: message.ticket)
        if not self.subscriptions:
            return messages
        for message in messages:
            if message.lane in self._delays:
                self._delay(message.lane, [message])
            else:
                message.put(self.waiting)
        for other in self.subscriptions:
            self._dispatch(other)
        return []

    def give_back(self, message: InFlightMessage, due: float) -> None:
        """Let a message that a subscription holds, and its lane, wait until `due`."""
        subscription = message.subscription
        assert subscription is not None
        returned = [message]
        if message.lane is not None:
            queues = (subscription.queue, subscription.pinned, self.waiting)
            returned += [other for queue in queues for other in queue.values() if other.lane == message.lane]
        for other in returned:
            if other is message or other.place is subscription.queue:
                subscription.held -= 1
            other.lift()
            self._unbind(other)
        delay = self._delay(message.ticket if message.lane is None else message.lane, returned)
        delay.due = max(delay.due, due)
        self._dispatch(subscription)

    def requeue(self, message: InFlightMessage, now: float) -> None:
        """Let a message that was left behind wait: for any subscription, until it is due, or behind one of its lane."""
        if message.due > now or message.lane in self._delays:
            delay = self._delay(message.ticket if message.lane is None else message.lane, [message])
            delay.due = max(delay.due, message.due)
        else:
            message.put(self.waiting)

    def resume(self, now: float) -> None:
        """Let the messages that are due go first."""
        due = [key for key, delay in self._delays.items() if delay.due <= now]
        messages = [message for key in due for message in self._delays.pop(key).queue.values()]
        messages.sort(key=lambda message: message.ticket, reverse=True)
        for message in messages:
            message.lift()
            message.put(self.waiting)
            self.waiting.move_to_end(message.ticket, last=False)
        for subscription in self.subscriptions if messages else ():
            self._dispatch(subscription)

    @property
    def delayed(self) -> int:
        """How many lanes, and messages without one, wait to be delivered again."""
        return len(self._delays)

    def is_delayed(self, message: InFlightMessage) -> bool:
        """Whether a message would wait behind another one of its lane that was given back."""
        return message.lane in self._delays

    def messages(self) -> Iterator[InFlightMessage]:
        """Every message that waits at a sender, in a queue, or to be delivered again."""
        yield from self.waiting.values()
        for delay in self._delays.values():
            yield from delay.queue.values()
        for subscription in self.subscriptions:
            yield from subscription.pinned.values()
            yield from subscription.queue.values()

    def _delay(self, key: tuple[str, str] | int, messages: list[InFlightMessage]) -> Delay:
        """Put messages behind a delay, in order of acceptance."""
        delay = self._delays.setdefault(key, Delay())
        waiting = sorted([*delay.queue.values(), *messages], key=lambda message: message.ticket)
        delay.queue.clear()
        for message in waiting:
            message.put(delay.queue)
        return delay

    def _choose(self, message: InFlightMessage) -> SubscriptionQueue | None:
        if self._delays and message.lane in self._delays:
            return None
        lane = None if message.lane is None else self._lanes.get(message.lane)
        if lane is not None:
            return lane.subscription if lane.subscription.held < lane.subscription.credit else None
        if len(self.subscriptions) == 1:
            only = self.subscriptions[0]
            return only if only.held < only.credit else None
        return self._freest()

    def _freest(self) -> SubscriptionQueue | None:
        """The subscription with the most free credit; among equals the first one after the last chosen."""
        number = len(self.subscriptions)
        order = [(self._last + 1 + step) % number for step in range(number)]
        best = max(order, key=lambda index: self.subscriptions[index].credit - self.subscriptions[index].held)
        subscription = self.subscriptions[best]
        if subscription.held >= subscription.credit:
            return None
        self._last = best
        return subscription

    def _dispatch(self, subscription: SubscriptionQueue) -> None:
        while subscription.held < subscription.credit:
            message = self._next_for(subscription)
            if message is None:
                return
            message.lift()
            if not self._admit(message):
                self._unbind(message)
            else:
                if message.subscription is None:
                    self._bind(message, subscription)
                subscription.push(message)

    def _next_for(self, subscription: SubscriptionQueue) -> InFlightMessage | None:
        """The earliest message that this subscription may take."""
        pinned = next(iter(subscription.pinned.values()), None)
        while self.waiting:
            message = next(iter(self.waiting.values()))
            if pinned is not None and pinned.ticket < message.ticket:
                return pinned
            lane = None if message.lane is None else self._lanes.get(message.lane)
            if lane is None or lane.subscription is subscription:
                return message
            message.lift()
            self._bind(message, lane.subscription)
            message.put(lane.subscription.pinned)
        return pinned

    def _bind(self, message: InFlightMessage, subscription: SubscriptionQueue) -> None:
        message.subscription = subscription
        if message.lane is not None:
            self._lanes.setdefault(message.lane, Lane(subscription)).count += 1

    def _unbind(self, message: InFlightMessage) -> None:
        """Forget that a message is bound; with the last one of its lane the lane is free again."""
        if message.subscription is None:
            return
        message.subscription = None
        lane = None if message.lane is None else self._lanes.get(message.lane)
        if message.lane is not None and lane is not None:
            lane.count -= 1
            if lane.count == 0:
                del self._lanes[message.lane]
