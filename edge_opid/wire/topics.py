"""Where each message travels: topics that build, parse and validate themselves.

Everything lives under `opid/1/{site}/{node}/`. Topics are built from ids, never from payloads,
so that no message can make a service publish or subscribe somewhere else.

| channel | from → to | retained |
|---|---|---|
| `reading/{source}` | sensor → node, and gateway while it measures a new sensor | |
| `label` | anyone allowed → node | |
| `label/now` | the same, a bare word: the class that is true now | |
| `ack/{source}` | node → sensor | |
| `prediction` | node → anyone | optional |
| `asked` | node → anyone: instances it is unsure of | |
| `status` | node → gateway, anyone | yes, and it is the last will |
| `event` | operator, node → gateway: sensors, introductions, examples | |
| `summary` | node → gateway | |
| `confirmed` | gateway → node: which events and summaries it has | |
| `desired` | gateway → node | yes, signed |

Below them, what MQTT (section 4.7) says of any topic and any filter, ours or not: `check_topic`,
`check_filter` and `matches`, the one matcher that nodes, links and brokers in memory share.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from edge_opid.errors import WireError, shown
from edge_opid.wire.ids import check_id

ROOT = "opid/1"
TOPIC_BYTES_MAX = 65_535  # a length in MQTT has two bytes


class Channel(StrEnum):
    """What a topic carries: its level below the node."""

    READING = "reading"
    LABEL = "label"
    LABEL_NOW = "label/now"
    ACK = "ack"
    PREDICTION = "prediction"
    ASKED = "asked"
    STATUS = "status"
    EVENT = "event"
    SUMMARY = "summary"
    CONFIRMED = "confirmed"
    DESIRED = "desired"

    @property
    def per_source(self) -> bool:
        """Whether the topic ends in the id of a source."""
        return self in (Channel.READING, Channel.ACK)

    @property
    def retained(self) -> bool:
        """Whether the broker keeps the last message for whoever subscribes later."""
        return self in (Channel.STATUS, Channel.DESIRED)


@dataclass(frozen=True, slots=True)
class Filter:
    """What to subscribe to: a topic in which `+` is any one level and a final `#` all the rest.

    >>> Filter("zigbee2mqtt/+").matches("zigbee2mqtt/attic")
    True
    >>> Filter("zigbee2mqtt/+").matches("zigbee2mqtt/attic/availability")
    False
    """

    text: str

    def __post_init__(self) -> None:
        check_filter(self.text)

    def __str__(self) -> str:
        return self.text

    def matches(self, topic: Topic | str) -> bool:
        """Whether the broker would deliver `topic` to a subscriber of this filter."""
        return matches(self.text, str(topic))

    def covers(self, other: Filter) -> bool:
        """Whether it asks for all that the other one asks for.

        >>> Filter("zigbee2mqtt/+").covers(Filter("zigbee2mqtt/hall"))
        True
        >>> Filter("zigbee2mqtt/+").covers(Filter("zigbee2mqtt/#"))
        False
        """
        if other.text.endswith("#") and not self.text.endswith("#"):
            return False
        return self.text == other.text or matches(self.text, other.text)


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic of one node.

    >>> topic = Topic.parse("opid/1/farm/n1/reading/attic")
    >>> topic.node, topic.channel.value, topic.source
    ('n1', 'reading', 'attic')
    >>> str(Topic("farm", "n1", Channel.STATUS))
    'opid/1/farm/n1/status'
    >>> topic.matches("opid/1/farm/+/reading/+")
    True
    """

    site: str
    node: str
    channel: Channel
    source: str | None = None

    def __post_init__(self) -> None:
        check_id(self.site, "site")
        check_id(self.node, "node")
        if self.source is not None:
            check_id(self.source, "source")
        if self.channel.per_source != (self.source is not None):
            wanted = "end in the id of a source" if self.channel.per_source else "have no source"
            raise WireError("topic", f"topic {str(self)!r} must {wanted}, got {self.source!r}")

    def __str__(self) -> str:
        ending = "" if self.source is None else f"/{self.source}"
        return f"{ROOT}/{self.site}/{self.node}/{self.channel}{ending}"

    @classmethod
    def parse(cls, text: str) -> Topic:
        """The topic that `text` spells, or a WireError."""
        levels = text.split("/", 6)
        if not text.startswith(ROOT + "/") or len(levels) not in (5, 6):
            raise WireError(
                "topic", f"topic {shown(text)} must be {ROOT}/site/node/channel, or /source after"
            )
        _, _, site, node, channel, *source = levels
        if [channel, *source] == ["label", "now"]:
            return cls(site, node, Channel.LABEL_NOW)
        if channel not in set(Channel):
            known = ", ".join(Channel)
            raise WireError("topic", f"channel must be one of {known}, got {shown(channel)}")
        return cls(site, node, Channel(channel), *source)

    def matches(self, pattern: Filter | str) -> bool:
        """Whether a subscription to `pattern` receives this topic."""
        wanted = Filter(pattern) if isinstance(pattern, str) else pattern
        return wanted.matches(self)


@dataclass(frozen=True, slots=True)
class NodeTopics:
    """All topics of one node, and who subscribes to which.

    >>> topics = NodeTopics("farm", "n1")
    >>> print(topics.to(Channel.DESIRED))
    opid/1/farm/n1/desired
    >>> [str(each) for each in topics.node_filters()]
    ['opid/1/farm/n1/reading/+', 'opid/1/farm/n1/label', 'opid/1/farm/n1/label/now', \
'opid/1/farm/n1/confirmed', 'opid/1/farm/n1/desired']
    """

    site: str
    node: str

    def __post_init__(self) -> None:
        check_id(self.site, "site")
        check_id(self.node, "node")

    def to(self, channel: Channel, source: str | None = None) -> Topic:
        """The topic of one channel; readings and acks are per source."""
        return Topic(self.site, self.node, channel, source)

    def node_filters(self) -> tuple[Filter, ...]:
        """What the node itself listens to."""
        labels = self._filter(Channel.LABEL), self._filter(Channel.LABEL_NOW)
        orders = self._filter(Channel.CONFIRMED), self._filter(Channel.DESIRED)
        return self.reading_filter(), *labels, *orders

    def reading_filter(self) -> Filter:
        """Every source's readings: for the node, and for a gateway that measures a new sensor."""
        return self._filter("reading/+")

    def _filter(self, ending: str) -> Filter:
        return Filter(f"{ROOT}/{self.site}/{self.node}/{ending}")


def gateway_filters(site: str | None = None) -> tuple[Filter, ...]:
    """What a gateway always listens to, for one site or for all of them.

    >>> [str(each) for each in gateway_filters("farm")]
    ['opid/1/farm/+/status', 'opid/1/farm/+/event', 'opid/1/farm/+/summary']
    """
    where = "+" if site is None else check_id(site, "site")
    return tuple(Filter(f"{ROOT}/{where}/+/{each}") for each in ("status", "event", "summary"))


def check_topic(topic: str) -> str:
    """The topic, if one may publish to it; else a `WireError`."""
    if "+" in topic or "#" in topic:
        raise _unfit("topic", topic, "holds a wildcard (+ or #): publish to one exact topic")
    return _check_text("topic", topic)


def check_filter(filter_: str) -> str:
    """The filter, if one may subscribe to it; else a `WireError`.

    >>> check_filter("opid/1/+/reading/#")
    'opid/1/+/reading/#'
    >>> check_filter("opid/#/reading")
    Traceback (most recent call last):
    edge_opid.errors.WireError: filter 'opid/#/reading' holds # before its last level
    """
    levels = _check_text("filter", filter_).split("/")
    if "#" in levels[:-1]:
        raise _unfit("filter", filter_, "holds # before its last level")
    for level in levels:
        if len(level) > 1 and ("+" in level or "#" in level):
            raise _unfit("filter", filter_, f"has {shown(level)}: + and # must be a whole level")
    return filter_


def matches(filter_: str, topic: str) -> bool:
    """Whether a subscriber to this filter receives this topic. Both must have been checked.

    >>> matches("a/+/c", "a/b/c"), matches("a/#", "a"), matches("+", "a/b"), matches("#", "$SYS/x")
    (True, True, False, False)
    """
    wanted, given = filter_.split("/"), topic.split("/")
    if topic.startswith("$") and wanted[0] in ("+", "#"):
        return False  # MQTT-4.7.2-1: the broker's own topics are asked for by name
    for place, level in enumerate(wanted):
        if level == "#":
            return True
        if place >= len(given) or level not in ("+", given[place]):
            return False
    return len(wanted) == len(given)


def _check_text(what: str, text: str) -> str:
    if not text or not text.isprintable():  # nor is a NUL, or half of a surrogate pair
        raise _unfit(what, text, "must be printable text, and not empty")
    if len(text.encode()) > TOPIC_BYTES_MAX:
        raise _unfit(what, text, f"must have at most {TOPIC_BYTES_MAX} bytes")
    return text


def _unfit(what: str, text: str, complaint: str) -> WireError:
    return WireError("topic", f"{what} {shown(text)} {complaint}")
