"""A `Desired` for many nodes: what they have in common is checked and packed once.

A cohort has thousands of nodes whose orders differ in little but address and version. A form has
the bytes of the rest; filling it in gives exactly the bytes of `codec.encode`, for the price of the
fields that are filled in. Whether one can be signed is the same, too: each of those is checked as
the message itself would.

>>> from edge_opid.wire import SensorDescription, encode
>>> order = Desired(
...     "street", "north", version=7, layout_version=2, vanishing=(), gate=8.0,
...     sensors=(SensorDescription(id="t1", role="temp", reference=20.0, scale=5.0),),
...     classes=("fresh", "stale"),
... )
>>> form = OrderForm(order)
>>> form.fill("street", "north", version=7, layout_version=2, gather=0) == encode(order)
True
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgpack  # type: ignore[import-untyped]  # ships no types

from edge_opid.errors import WireError
from edge_opid.wire.documents import Desired
from edge_opid.wire.messages import SCHEMA_VERSION
from edge_opid.wire.reader import pack
from edge_opid.wire.schema import slots_of

FILLED_IN = ("site", "node", "version", "layout_version")
LAST = "gather"
"""Not sent while it is 0, and the last field of all."""


class OrderForm:
    """The bytes of an order but for whose it is, its numbers, and how much it asks for."""

    def __init__(self, example: Desired) -> None:
        common = {
            name: value
            for name, value in example.plain().items()
            if name not in FILLED_IN and name != LAST
        }
        self._head = pack_pairs({"v": SCHEMA_VERSION, "kind": Desired.kind})
        self._tail = pack_pairs(common)
        keys = 2 + len(FILLED_IN) + len(common)
        self._starts = tuple(_map_header(keys + more) + self._head for more in (0, 1))

    def fill(
        self, site: str, node: str, *, version: int, layout_version: int, gather: int
    ) -> bytes:
        """The bytes of the order to this node."""
        parts = [self._starts[gather != 0], _address(site, node)]
        for name, value in (("version", version), ("layout_version", layout_version)):
            parts += _pair(name, value)
        parts.append(self._tail)
        if gather:
            parts += _pair(LAST, gather)
        document = b"".join(parts)
        if len(document) > Desired.bytes_max:
            sentence = f"desired must have at most {Desired.bytes_max} bytes, got {len(document)}"
            raise WireError("size", sentence)
        return document


def pack_pairs(pairs: dict[str, Any]) -> bytes:
    """The keys and values of a map, without its header."""
    return b"".join(pack(each) for pair in pairs.items() for each in pair)


@lru_cache(maxsize=16_384)
def _address(site: str, node: str) -> bytes:
    """Whose it is: checked and packed once for all orders to a node."""
    return b"".join((*_pair("site", site), *_pair("node", node)))


@lru_cache(maxsize=1_024, typed=True)  # typed: True is equal to 1, and is refused
def _pair(name: str, value: Any) -> tuple[bytes, bytes]:
    """One field: the nodes of a wave have mostly the same few numbers."""
    check, packed = _FIELDS[name]
    check(value, f"{Desired.kind}.{name}")
    return packed, pack(value)


def _map_header(keys: int) -> bytes:
    header: bytes = msgpack.Packer().pack_map_header(keys)
    return header


_FIELDS = {name: (slots_of(Desired)[name].field.check, pack(name)) for name in (*FILLED_IN, LAST)}
