"""One number for all that happened: two runs that differ anywhere differ here."""

from __future__ import annotations

from hashlib import blake2b

_END = b"\xff" * 4  # no part is that long: the end of an event


class Digest:
    """A hash over everything that changed somebody's state, in the order in which it happened.

    Each part is hashed with its length, so that no two sequences of parts look alike.

    >>> one, two = Digest(), Digest()
    >>> one.add("n1", b"21.3"); two.add("n12", b"1.3")
    >>> one.hex() == two.hex(), len(one.hex())
    (False, 16)
    """

    def __init__(self) -> None:
        self.parts = 0
        self._hash = blake2b(digest_size=8)

    def add(self, *parts: str | int | bytes) -> None:
        """Take these in, as one event."""
        pieces: list[bytes] = []
        for part in parts:
            data = part if isinstance(part, bytes) else str(part).encode()
            pieces += (len(data).to_bytes(4, "little"), data)
        pieces.append(_END)
        self._hash.update(b"".join(pieces))
        self.parts += 1

    def hex(self) -> str:
        """What identifies the run so far."""
        return self._hash.hexdigest()
