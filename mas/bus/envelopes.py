"""Envelopes with fresh ids."""

import itertools

import msgspec

from mas.core.messages import Delivery, Envelope, Payload

_factories = itertools.count(1)


class EnvelopeFactory:
    """Makes the envelopes of one sender.

    Ids read `source/factory/number`: both count from 1, so that the same program makes the same ids again.

    Args:
        source: address of the sender.
        principal: who sends, as the guard knows it; None: the source.
        run, episode, role: written into every envelope.
        process: goes before every id; needed where several processes share a bus, because each counts from 1.
    """

    def __init__(
        self,
        source: str,
        *,
        principal: str | None = None,
        run: str | None = None,
        episode: str | None = None,
        role: str | None = None,
        process: str = "",
    ) -> None:
        # Envelopes are changed copies of this one: with a dozen fields, copying is faster than making each anew.
        self._blank = Envelope(
            id="",
            kind=Payload.kind,
            source=source,
            target="",
            payload=Payload(),
            principal=principal,
            run=run,
            episode=episode,
            role=role,
        )
        self._prefix = f"{process}/{source}/{next(_factories)}" if process else f"{source}/{next(_factories)}"
        self._numbers = itertools.count(1)

    def new(
        self,
        target: str,
        payload: Payload,
        *,
        key: str | None = None,
        causation: str | None = None,
        deadline: float | None = None,
        delivery: Delivery = Delivery.EFFECTIVELY_ONCE,
        visibility: frozenset[str] | None = None,
        group: str | None = None,
        turn: int | None = None,
        adapter: str | None = None,
    ) -> Envelope:
        """An envelope to `target`; see `Envelope` for the fields."""
        return msgspec.structs.replace(
            self._blank,
            id=f"{self._prefix}/{next(self._numbers)}",
            kind=payload.kind,
            target=target,
            payload=payload,
            key=key,
            causation=causation,
            deadline=deadline,
            delivery=delivery,
            visibility=visibility,
            group=group,
            turn=turn,
            adapter=adapter,
        )

    def answer(self, request: Envelope, payload: Payload) -> Envelope:
        """The answer to a request, in the same run, episode, group and turn.

        The answer to a private request is private: to the request's readers and the requester.
        """
        visibility = request.visibility
        if visibility is not None:
            visibility |= {request.source if request.principal is None else request.principal}
        return msgspec.structs.replace(
            self._blank,
            id=f"{self._prefix}/{next(self._numbers)}",
            kind=payload.kind,
            target=request.source,
            payload=payload,
            correlation=request.id,
            causation=request.id,
            key=request.key,
            delivery=request.delivery,
            visibility=visibility,
            run=request.run,
            episode=request.episode,
            group=request.group,
            turn=request.turn,
            traceparent=request.traceparent,
        )
