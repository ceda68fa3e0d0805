"""Where a device is said to be there, or gone: beside its values, mostly as the broker's last word.

Home Assistant's discovery announces the topic. Where nobody has, there are customs: zigbee2mqtt's
`<topic>/availability`, Tasmota's `<topic>/LWT`, ESPHome's `<node>/status`. One is proposed where it
was heard, and said something that a node understands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from edge_opid.discovery.heard import Heard
from edge_opid.discovery.values import Value
from edge_opid.errors import WireError
from edge_opid.wire.foreign import is_online
from edge_opid.wire.topics import check_filter


def availability(topic: str, values: Iterable[Value], heard: Heard) -> str:
    """The topic on which the device of these values is said to be there; empty: none is known.

    >>> heard = Heard()
    >>> heard.add("zigbee2mqtt/Attic/availability", b'{"state":"online"}', retained=True, at_s=0.0)
    >>> availability("zigbee2mqtt/Attic", [], heard)
    'zigbee2mqtt/Attic/availability'
    """
    announced = [value.availability for value in values if value.availability]
    for each in (*announced, *_customs(topic)):
        said = heard.topics.get(each)
        known = _is_understood(said.payload) if said is not None else each in announced
        if known and _may_be_asked_for(each):
            return each
    return ""


def _customs(topic: str) -> Iterator[str]:
    above = topic.rpartition("/")[0]
    yield f"{topic}/availability"
    yield f"{above}/LWT"
    for kind in ("/sensor/", "/binary_sensor/"):
        if kind in topic:
            yield f"{topic.rpartition(kind)[0]}/status"


def _is_understood(payload: bytes) -> bool:
    try:
        is_online(payload)
    except WireError:
        return False
    return True


def _may_be_asked_for(topic: str) -> bool:
    try:
        return "+" not in topic and "#" not in topic and bool(check_filter(topic))
    except WireError:
        return False
