"""All that one address holds: its subscriptions, its waiting senders, and the order of keyed messages.

Order: a message is bound to the subscription that still holds an earlier one of its lane (source, key); while none
does, it goes to the subscription with the most free credit, in turn where they are equal. Senders wait in order of
acceptance: in `waiting` while any subscription may serve them, in an inbox's `pinned` once their lane binds them to it.
Whenever a subscription has free credit, nobody waits for it; `dispatch` keeps that so. A message that was given back
halts its lane: it and all later ones of the lane wait together until it is due, then they come first.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator

from mas.bus.inbox import Inbox
from mas.bus.slot import Queue, Slot


class Lane:
    """Which subscription the messages of one (source, key) are bound to, and how many of them."""

    __slots__ = ("count", "inbox")

    def __init__(self, inbox: Inbox) -> None:
        self.inbox = inbox
        self.count = 0


class Halt:
    """A message that was given back, and what waits behind it, in order; delivered from `due` on."""

    __slots__ = ("due", "queue")

    def __init__(self) -> None:
        self.due = -math.inf
        self.queue: Queue = OrderedDict()


class Mailbox:
    """One address with at least one subscription.

    Args:
        principal: who reads at the address: the same for all its subscriptions.
        admit: asked before a message enters a queue; False: the message was settled otherwise, and counted.
    """

    def __init__(self, principal: str, *, admit: Callable[[Slot], bool]) -> None:
        self.principal = principal
        self.inboxes: list[Inbox] = []
        self.waiting: Queue = OrderedDict()
        self.has_deadlines = False
        self._admit = admit
        self._lanes: dict[tuple[str, str], Lane] = {}
        self._halts: dict[tuple[str, str] | int, Halt] = {}
        self._last = 0

    def offer(self, slot: Slot) -> bool:
        """Put a message into a queue if one has room for it now; False: no room."""
        inbox = self._choose(slot)
        if inbox is None:
            return False
        if self._admit(slot):
            self._bind(slot, inbox)
            inbox.push(slot)
        return True

    def park(self, slot: Slot) -> None:
        """Let a message wait for room."""
        lane = None if slot.lane is None else self._lanes.get(slot.lane)
        if slot.lane in self._halts:
            slot.put(self._halts[slot.lane].queue)
        elif lane is None or self.waiting:
            slot.put(self.waiting)
        else:
            self._bind(slot, lane.inbox)
            slot.put(lane.inbox.pinned)

    def withdraw(self, slot: Slot) -> None:
        """Take a message that nobody received out of its queue, and give its credit back."""
        inbox = slot.inbox
        is_held = inbox is not None and slot.place is inbox.queue
        slot.lift()
        if is_held:
            self.release(slot)
        elif inbox is not None:
            self._unbind(slot)

    def release(self, slot: Slot) -> None:
        """Give the credit of one message back, and serve whoever waited for it."""
        inbox = slot.inbox
        if inbox is None or inbox not in self.inboxes:
            return
        inbox.held -= 1
        self._unbind(slot)
        if self.waiting or inbox.pinned:
            self._dispatch(inbox)

    def join(self, inbox: Inbox) -> None:
        """Add a subscription."""
        self.inboxes.append(inbox)
        self._dispatch(inbox)

    def leave(self, inbox: Inbox, again: list[Slot]) -> list[Slot]:
        """Remove a subscription; what it had not handed out, and `again`, goes to the others.

        Returns:
            The messages that nobody is left to take, in order.
        """
        self.inboxes.remove(inbox)
        self._last = 0
        self._lanes = {lane: bound for lane, bound in self._lanes.items() if bound.inbox is not inbox}
        slots = [*self.waiting.values(), *inbox.pinned.values(), *inbox.queue.values(), *again]
        if not self.inboxes:
            slots += [slot for halt in self._halts.values() for slot in halt.queue.values()]
        for slot in slots:
            slot.lift()
            slot.inbox = None
        slots.sort(key=lambda slot: slot.ticket)
        if not self.inboxes:
            return slots
        for slot in slots:
            if slot.lane in self._halts:
                self._stand(slot.lane, [slot])
            else:
                slot.put(self.waiting)
        for other in self.inboxes:
            self._dispatch(other)
        return []

    def give_back(self, slot: Slot, due: float) -> None:
        """Let a message that a subscription holds, and its lane, wait until `due`."""
        inbox = slot.inbox
        assert inbox is not None
        returned = [slot]
        if slot.lane is not None:
            queues = (inbox.queue, inbox.pinned, self.waiting)
            returned += [other for queue in queues for other in queue.values() if other.lane == slot.lane]
        for other in returned:
            if other is slot or other.place is inbox.queue:
                inbox.held -= 1
            other.lift()
            self._unbind(other)
        halt = self._stand(slot.ticket if slot.lane is None else slot.lane, returned)
        halt.due = max(halt.due, due)
        self._dispatch(inbox)

    def stand(self, slot: Slot, now: float) -> None:
        """Let a message that was left behind wait: for anybody, until it is due, or behind one of its lane."""
        if slot.due > now or slot.lane in self._halts:
            halt = self._stand(slot.ticket if slot.lane is None else slot.lane, [slot])
            halt.due = max(halt.due, slot.due)
        else:
            slot.put(self.waiting)

    def resume(self, now: float) -> None:
        """Let the messages that are due go first."""
        due = [key for key, halt in self._halts.items() if halt.due <= now]
        slots = [slot for key in due for slot in self._halts.pop(key).queue.values()]
        slots.sort(key=lambda slot: slot.ticket, reverse=True)
        for slot in slots:
            slot.lift()
            slot.put(self.waiting)
            self.waiting.move_to_end(slot.ticket, last=False)
        for inbox in self.inboxes if slots else ():
            self._dispatch(inbox)

    @property
    def halted(self) -> int:
        """How many lanes, and messages without one, wait to be delivered again."""
        return len(self._halts)

    def is_halted(self, slot: Slot) -> bool:
        """Whether a message would wait behind another one of its lane that was given back."""
        return slot.lane in self._halts

    def slots(self) -> Iterator[Slot]:
        """Every message that waits at a sender, in a queue, or to be delivered again."""
        yield from self.waiting.values()
        for halt in self._halts.values():
            yield from halt.queue.values()
        for inbox in self.inboxes:
            yield from inbox.pinned.values()
            yield from inbox.queue.values()

    def _stand(self, key: tuple[str, str] | int, slots: list[Slot]) -> Halt:
        """Put messages behind a halt, in order of acceptance."""
        halt = self._halts.setdefault(key, Halt())
        standing = sorted([*halt.queue.values(), *slots], key=lambda slot: slot.ticket)
        halt.queue.clear()
        for slot in standing:
            slot.put(halt.queue)
        return halt

    def _choose(self, slot: Slot) -> Inbox | None:
        if self._halts and slot.lane in self._halts:
            return None
        lane = None if slot.lane is None else self._lanes.get(slot.lane)
        if lane is not None:
            return lane.inbox if lane.inbox.held < lane.inbox.credit else None
        if len(self.inboxes) == 1:
            only = self.inboxes[0]
            return only if only.held < only.credit else None
        return self._freest()

    def _freest(self) -> Inbox | None:
        """The subscription with the most free credit; among equals the first one after the last chosen."""
        number = len(self.inboxes)
        order = [(self._last + 1 + step) % number for step in range(number)]
        best = max(order, key=lambda index: self.inboxes[index].credit - self.inboxes[index].held)
        inbox = self.inboxes[best]
        if inbox.held >= inbox.credit:
            return None
        self._last = best
        return inbox

    def _dispatch(self, inbox: Inbox) -> None:
        while inbox.held < inbox.credit:
            slot = self._next_for(inbox)
            if slot is None:
                return
            slot.lift()
            if not self._admit(slot):
                self._unbind(slot)
            else:
                if slot.inbox is None:
                    self._bind(slot, inbox)
                inbox.push(slot)

    def _next_for(self, inbox: Inbox) -> Slot | None:
        """The earliest message that this subscription may take."""
        pinned = next(iter(inbox.pinned.values()), None)
        while self.waiting:
            slot = next(iter(self.waiting.values()))
            if pinned is not None and pinned.ticket < slot.ticket:
                return pinned
            lane = None if slot.lane is None else self._lanes.get(slot.lane)
            if lane is None or lane.inbox is inbox:
                return slot
            slot.lift()
            self._bind(slot, lane.inbox)
            slot.put(lane.inbox.pinned)
        return pinned

    def _bind(self, slot: Slot, inbox: Inbox) -> None:
        slot.inbox = inbox
        if slot.lane is not None:
            self._lanes.setdefault(slot.lane, Lane(inbox)).count += 1

    def _unbind(self, slot: Slot) -> None:
        """Forget that a message is bound; with the last one of its lane the lane is free again."""
        if slot.inbox is None:
            return
        slot.inbox = None
        lane = None if slot.lane is None else self._lanes.get(slot.lane)
        if slot.lane is not None and lane is not None:
            lane.count -= 1
            if lane.count == 0:
                del self._lanes[slot.lane]
