"""Brokers: what `broker check` finds, and sites whose brokers are bridged to a central one."""

from __future__ import annotations

import json
import random

import pytest
from support.mosquitto import Mosquitto, find_mosquitto

from benchmarks.sites.bridge import AWAY, BUSY, READINGS, THERE, BridgedSite
from edge_opid.link.options import MqttOptions
from gateway.__main__ import main
from gateway.broker_check import NO, YES, BrokerCheck


def outcomes(check) -> dict[str, str]:
    return {each.name: each.outcome for each in check.findings()}


def test_mosquitto_has_what_is_needed_and_keeps_nothing_of_the_check(tmp_path):
    with Mosquitto(tmp_path, persistence=True) as broker:

        def restart():
            broker.stop()
            broker.start()

        address = MqttOptions(client_id="check", port=broker.port)
        assert set(outcomes(BrokerCheck([address], restart=restart)).values()) == {YES}
        broker.stop()
        assert b"opid-check" not in (tmp_path / "mosquitto.db").read_bytes()


def test_two_brokers_that_know_nothing_of_each_other_are_no_cluster(tmp_path, capsys):
    """As RabbitMQ's and ejabberd's: a node that comes back at the other address finds no order."""
    small = ("max_inflight_messages 10", "message_size_limit 100000")
    with (
        Mosquitto(tmp_path / "a") as one,
        Mosquitto(tmp_path / "b", extra=small) as other,
    ):
        urls = [f"mqtt://127.0.0.1:{each.port}" for each in (one, other)]
        assert main(["broker", "check", *urls, "--wait-s", "3", "--json"]) == 1
    found = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    lacking = {name for name, each in found.items() if each["outcome"] == NO}
    assert lacking == {
        "retained elsewhere",
        "retained by wildcard",
        "retained replaced, removed",
        "session moves",
        "one client a session",
        "large message",
    }
    assert f"127.0.0.1:{other.port} has 0 of 1 retained" in found["retained elsewhere"]["seen"]


def test_a_broker_with_a_narrow_window_or_none_at_all_is_told(tmp_path):
    with Mosquitto(tmp_path, extra=("max_inflight_messages 10",)) as broker:
        # in MQTT 5 the client says how many it takes, and mosquitto believes it
        address = MqttOptions(client_id="check", port=broker.port, mqtt_5_first=False)
        found = {each.name: each for each in BrokerCheck([address], wait_s=5.0).findings()}
        broker.kill()
        gone = list(BrokerCheck([address], wait_s=0.2).findings())
    assert "10 messages unacknowledged at a time, 20 are needed" in found["window"].seen
    assert [each.name for each in gone] == ["answers"]
    assert gone[0].is_lacking


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("http://broker", "must be mqtt://HOST"),
        ("mqtt://user:hunter2@broker", "use --credentials FILE"),
        ("mqtts://broker", "needs --tls-ca FILE"),
        ("mqtt://broker:port", "must be mqtt://HOST"),
    ],
)
def test_an_address_that_is_none_is_one_sentence_without_a_password(url, complaint, capsys):
    assert main(["broker", "check", url]) == 2
    said = capsys.readouterr().err
    assert complaint in said
    assert "hunter2" not in said


def test_a_site_with_its_own_broker_loses_nothing_in_a_crash_of_the_centre(tmp_path):
    """`kill -9` of the centre while events are on their way, with the files that `init` writes.

    mosquitto confirms before it saves, and does not save what is on its way to a gateway that is
    busy: what it loses the node repeats, and the book has it all. Readings stay at home.
    """
    find_mosquitto()
    chance = random.Random(5)
    with BridgedSite(tmp_path) as site:
        site.meet()
        assert site.trial(10, None) == (0, 0)
        site.source.publish(READINGS, b"42")
        for gateway in (THERE, AWAY, BUSY):
            _, missing = site.trial(100, chance.randrange(50, 100), gateway)
            assert missing == 0
            assert site.order_arrives()
        assert b"42" not in site.heard
        assert site.source.counters.published == 1
