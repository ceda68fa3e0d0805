"""What waits for a commit: records, deliveries to release, senders to acknowledge."""

from __future__ import annotations

PENDING_BYTES_MAX = 98_304  # three quarters of what the store keeps: one message more always fits
RECORD_COSTS_BYTES = 64  # beside its own bytes: headers, and a list's place


class Uncommitted:
    """Nothing here is durable, and nothing has to be: after a crash it all comes again."""

    def __init__(self) -> None:
        self.records, self._bytes = 0, 0
        self._since_ms = 0
        self._tokens: list[object] = []
        self._sources: set[str] = set()
        self.trouble = ""
        """What the disk said when it last refused."""

    def owe(self, record: bytes, now_ms: int) -> None:
        """A record was appended."""
        if not self.records:
            self._since_ms = now_ms
        self.records += 1
        self._bytes += len(record) + RECORD_COSTS_BYTES

    def owe_reply(self, token: object, source: str | None) -> None:
        """A delivery is to be released, and its sender to be acknowledged by number."""
        self._tokens.append(token)
        if source is not None:
            self._sources.add(source)

    def is_full_for(self, size: int) -> bool:
        """Whether a record of this size would be more than may wait."""
        return self._bytes + size > PENDING_BYTES_MAX

    def is_due(self, records_max: int) -> bool:
        """Whether so much waits that a commit is worth it; a disk in trouble has its own pace."""
        large = self._bytes >= PENDING_BYTES_MAX // 2 and not self.trouble
        return self.records >= records_max or large

    def waited_ms(self, now_ms: int) -> int:
        """How long the oldest record has been waiting; 0 where none is."""
        return now_ms - self._since_ms if self.records else 0

    def settle(self) -> tuple[list[object], list[str]]:
        """Everything is durable: the deliveries to release, and the sources to acknowledge."""
        tokens, sources = self._tokens, sorted(self._sources)
        self.records, self._bytes = 0, 0
        self._tokens, self._sources, self.trouble = [], set(), ""
        return tokens, sources

    def note_refusal(self, reason: str, now_ms: int) -> bool:
        """The disk refused; everything waits for another interval. Whether that is news."""
        news, self.trouble = not self.trouble, reason
        self._since_ms = now_ms
        return news

    def forget_tokens(self) -> None:
        """Deliveries of a former connection cannot be released any more: they come again."""
        self._tokens.clear()
