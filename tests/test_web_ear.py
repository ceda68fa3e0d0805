"""What the pages hear of the broker, whatever is said there."""

from __future__ import annotations

import pytest

pytest.importorskip("starlette")

from support.web_site import SilentLink, hear, status

from edge_opid.link.contract import Delivery
from edge_opid.wire import encode
from gateway.web.ear import Ear

KEY = ("farm", "n1")


@pytest.fixture
def ear():
    found = Ear(SilentLink(), ["farm"])
    hear(found, KEY)
    return found


def arrive(ear, topic, payload):
    ear._hear(Delivery(topic, payload, 0, False, None))


def test_what_a_node_says_is_its_prediction_also_while_everything_is_listened_to(ear):
    """`#` brings every status, too; the table of the fleet went blank while somebody discovered."""
    before, count = ear.said(KEY), ear._heard[KEY].count
    ear.discover()
    for channel in ("status", "event", "summary", "desired"):
        arrive(ear, f"opid/1/farm/n1/{channel}", encode(status()))
    assert (ear.said(KEY), ear._heard[KEY].count) == (before, count)


def test_a_prediction_too_large_to_be_one_is_not_kept(ear):
    """Messages of eight megabytes are taken for the sake of zigbee2mqtt: one for each of thousands
    of invented nodes would fill the memory.
    """
    before = ear.said(KEY)
    for number in range(3):
        arrive(ear, f"opid/1/farm/x{number}/prediction", bytes(1_000_000))
    arrive(ear, "opid/1/farm/n1/prediction", bytes(1_000_000))
    assert sum(len(each.payload) for each in ear._heard.values()) < 1_000_000
    assert ear.said(KEY) == before


def test_what_comes_after_listening_is_not_added_to_what_was_heard(ear):
    """Late messages would change it while a page is being made of it."""
    arrive(ear, "zigbee2mqtt/attic", b"21.5")
    assert not ear.home.topics
    ear.discover()
    arrive(ear, "zigbee2mqtt/attic", b"21.5")
    assert ear.home.topics
    ear._home_until_s = 1.0
    arrive(ear, "zigbee2mqtt/cellar", b"14.5")
    assert list(ear.home.topics) == ["zigbee2mqtt/attic"]
