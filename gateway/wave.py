"""How long it takes until every node has done what it was told: a line in the log for each wave."""

from __future__ import annotations

from edge_opid import log

from .service import Gateway


class Wave:
    """From the first order that nobody has obeyed yet until all are obeyed."""

    def __init__(self) -> None:
        self._signed_before = 0
        self._began_ms: int | None = None

    def follow(self, gateway: Gateway, began_ms: int, now_ms: int) -> None:
        """Look at the end of a round that began at `began_ms`."""
        under_way = gateway.busy or gateway.publisher.waiting > 0
        signed = gateway.counts["orders"]
        if under_way and self._began_ms is None:
            self._began_ms = began_ms
        elif not under_way and self._began_ms is not None:
            seconds = f"{(now_ms - self._began_ms) / 1000:.2f}"
            log.info("all orders reported", orders=signed - self._signed_before, seconds=seconds)
            self._began_ms = None
        if not under_way:
            self._signed_before = signed
