"""Topics and filters: a table of what matches, what does not, and what is no topic at all."""

from __future__ import annotations

import pytest

from edge_opid.wire import Channel, Filter, NodeTopics, Topic, WireError, check_id, gateway_filters

MATCHES = [
    ("opid/1/farm/n1/reading/attic", "opid/1/farm/n1/reading/attic"),
    ("opid/1/farm/n1/reading/attic", "opid/1/farm/n1/reading/+"),
    ("opid/1/farm/n1/reading/attic", "opid/1/+/+/reading/+"),
    ("opid/1/farm/n1/reading/attic", "opid/1/farm/n1/#"),
    ("opid/1/farm/n1/reading/attic", "opid/#"),
    ("opid/1/farm/n1/reading/attic", "#"),
    ("opid/1/farm/n1/status", "opid/1/farm/n1/status/#"),  # MQTT: # includes the parent
    ("opid/1/farm/n1/status", "+/+/+/+/+"),
]
NON_MATCHES = [
    ("opid/1/farm/n1/reading/attic", "opid/1/farm/n1/reading"),
    ("opid/1/farm/n1/reading/attic", "opid/1/farm/n1/+"),
    ("opid/1/farm/n1/reading/attic", "opid/1/farm/n2/reading/+"),
    ("opid/1/farm/n1/reading/attic", "opid/1/farm/n1/reading/att"),
    ("opid/1/farm/n1/reading/attic", "opid/1/farm/n1/reading/attic/+"),
    ("opid/1/farm/n1/reading/attic", "/opid/1/farm/n1/reading/attic"),
    ("opid/1/farm/n1/status", "opid/1/farm/n1/status/+"),
    ("opid/1/farm/n1/status", "opid/2/+/+/status"),
    ("opid/1/farm/n1/status", "OPID/1/farm/n1/status"),
]
NO_TOPICS = [
    "",
    "opid",
    "opid/1",
    "opid/1/farm/n1",
    "opid/1/farm/n1/",
    "opid/2/farm/n1/status",
    "opid/1/farm/n1/reading",  # a reading without its source
    "opid/1/farm/n1/reading/",
    "opid/1/farm/n1/status/attic",  # a status with one
    "opid/1/farm/n1/reading/attic/more",
    "opid/1/farm/n1/READING/attic",
    "opid/1/farm/n1/unheard",
    "opid/1/Farm/n1/status",
    "opid/1/../n1/status",
    "opid/1/+/n1/status",
    "opid/1/farm/#",
    "opid/1/farm/n1\n/status",
    "opid/1/farm/n1\x00/status",
    "/opid/1/farm/n1/status",
    "$SYS/broker/uptime",
    "opid/1/" + "a" * 33 + "/n1/status",
    "opid/1/" + "a/" * 30_000,
]
NO_FILTERS = ["", "opid/#/status", "opid/1+/x", "opid/#x", "opid/\x00", "\ud800", "a" * 65_536]
NO_IDS = ["", "A", "-a", "_a", "a b", "a/b", "a+", "#", "a\n", "ä", "a" * 33, "a.b", None, 7, b"a"]


@pytest.mark.parametrize(("topic", "pattern"), MATCHES)
def test_a_subscription_catches_its_topic(topic: str, pattern: str) -> None:
    """Every pair of this table matches, asked either way."""
    assert Topic.parse(topic).matches(pattern)
    assert Filter(pattern).matches(topic)


@pytest.mark.parametrize(("topic", "pattern"), NON_MATCHES)
def test_a_subscription_catches_no_other_topic(topic: str, pattern: str) -> None:
    """No pair of this table matches, asked either way."""
    assert not Topic.parse(topic).matches(Filter(pattern))
    assert not Filter(pattern).matches(topic)


@pytest.mark.parametrize("pattern", ["#", "+/broker/uptime"])
def test_a_leading_wildcard_does_not_reach_the_brokers_own_topics(pattern: str) -> None:
    """MQTT keeps `$SYS` out of leading wildcards; a filter that names it still matches."""
    assert not Filter(pattern).matches("$SYS/broker/uptime")
    assert Filter("$SYS/#").matches("$SYS/broker/uptime")


@pytest.mark.parametrize("text", NO_TOPICS)
def test_a_text_that_is_no_topic_is_refused_in_one_line(text: str) -> None:
    """Refused by reason, in one short line, whatever it holds."""
    with pytest.raises(WireError) as caught:
        Topic.parse(text)
    assert caught.value.reason in ("topic", "id")
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize("text", NO_FILTERS)
def test_a_filter_the_broker_would_refuse_is_refused_here(text: str) -> None:
    """Better here than as a silent failure to subscribe."""
    with pytest.raises(WireError, match="filter "):
        Filter(text)


@pytest.mark.parametrize("value", NO_IDS)
def test_an_id_that_could_escape_its_topic_is_refused(value: object) -> None:
    """Slashes, wildcards, newlines and capitals never get into a topic."""
    with pytest.raises(WireError) as caught:
        check_id(value, "node")
    assert caught.value.reason == "id"
    with pytest.raises(WireError):
        NodeTopics("farm", value)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["a", "0", "pm25_outdoor-2", "a" * 32])
def test_an_ordinary_id_is_accepted(value: str) -> None:
    """Ids of the documented form pass unchanged."""
    assert check_id(value, "node") == value


@pytest.mark.parametrize("channel", Channel)
def test_a_topic_survives_its_own_text(channel: Channel) -> None:
    """What is built is parsed back the same; only readings and acks name a source."""
    source = "attic" if channel in ("reading", "ack") else None
    topic = NodeTopics("farm", "n1").to(channel, source)
    assert Topic.parse(str(topic)) == topic
    assert channel.retained == (channel in ("status", "desired"))


def test_every_service_hears_what_it_needs_and_nothing_else() -> None:
    """Who subscribes to what, over every topic of two nodes."""
    mine, other = NodeTopics("farm", "n1"), NodeTopics("farm", "n2")
    everything = [
        topics.to(channel, "attic" if channel.per_source else None)
        for topics in (mine, other)
        for channel in Channel
    ]

    def heard(filters: tuple[Filter, ...]) -> list[str]:
        return [
            str(each).removeprefix("opid/1/farm/")
            for each in everything
            if any(map(each.matches, filters))
        ]

    assert heard(mine.node_filters()) == [
        "n1/reading/attic",
        "n1/label",
        "n1/label/now",
        "n1/confirmed",
        "n1/desired",
    ]
    assert heard(gateway_filters()) == [
        f"{node}/{what}" for node in ("n1", "n2") for what in ("status", "event", "summary")
    ]
    assert heard(gateway_filters("elsewhere")) == []
