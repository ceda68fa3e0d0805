"""The link: bytes in and out of a node, over any transport.

Read in this order: `contract` (what every link promises), `queues` and `exchange` (the bounded
state a link keeps), `packets` (what may come in), `connection` (one life of paho), `options` and
`mqtt` (the real thing: it runs while it is polled), `tls` (where the broker speaks it),
`background` (the same in a thread, for scripts). A link knows topics and payloads, but not
messages.

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
    SubscriptionGranted,
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
    "SubscriptionGranted",
    "SubscriptionRefused",
    "TlsFiles",
    "Will",
]
