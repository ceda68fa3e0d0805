"""The link: bytes in and out of a node, whatever carries them.

Read in this order: `contract` (what every link promises), `ordering`, `mailbox` and `outbox` (the
bounded state a link keeps), `memory` (a broker and a link in one process, for tests and
simulators), `packets` (what may come in), `options` and `mqtt` (the real thing). A link knows
topics and payloads, and nothing of messages.

`MqttLink` is imported from `edge_opid.link.mqtt`, so that a simulator never loads paho.
"""

from edge_opid.link.contract import (
    Connected,
    Delivery,
    Disconnected,
    Link,
    LinkCounters,
    LinkError,
    LinkEvent,
    MessageDropped,
    PublishRefused,
    SubscriptionRefused,
    Will,
)
from edge_opid.link.options import MqttOptions, TlsFiles

__all__ = [
    "Connected",
    "Delivery",
    "Disconnected",
    "Link",
    "LinkCounters",
    "LinkError",
    "LinkEvent",
    "MessageDropped",
    "MqttOptions",
    "PublishRefused",
    "SubscriptionRefused",
    "TlsFiles",
    "Will",
]
