"""A sensor script's readings through loss, copies, restarts and a real broker."""

from __future__ import annotations

import errno
import os
import random
import threading
from pathlib import Path
from typing import Any

import pytest
from support.mosquitto import Mosquitto
from support.source_station import (
    Receiver,
    Station,
    config,
    decode_ack,
    decode_reading,
    encode_reading,
)

from edge_opid.link import MqttOptions
from edge_opid.link.background import BackgroundLink
from edge_opid.source import ReadingNumber, Source, SpoolError, SpoolFullError
from edge_opid.testing import MemoryBroker, MemoryLink
from firmware_sim.live.processes import WAIT_S


def test_readings_arrive_once_in_order_with_their_numbers(tmp_path: Path) -> None:
    """The plain case: ten readings, ten applications, an empty spool."""
    station = Station(tmp_path)
    source = station.source()
    numbers = [source.send({"temp": float(n)}) for n in range(10)]
    station.run(source)
    assert station.receiver.applied == [(n, {"temp": float(n.seq - 1)}) for n in numbers]
    assert [number.seq for number in numbers] == list(range(1, 11))
    assert source.counters.lost == source.resent == 0
    source.close()


@pytest.mark.parametrize("seed", range(8))
def test_lossy_network_loses_and_doubles_nothing(tmp_path: Path, seed: int) -> None:
    """Readings and acknowledgements vanish or double; what is applied is exact."""
    station = Station(tmp_path, loss=0.3, seed=seed)
    source = station.source(window=32)
    numbers = [source.send({"temp": float(n)}) for n in range(200)]
    station.run(source, seconds=20_000.0)
    assert [number for number, _ in station.receiver.applied] == numbers
    assert source.resent > 0
    assert source.counters.lost == 0
    source.close()


def test_restart_sends_the_rest_under_its_original_numbers(tmp_path: Path) -> None:
    """The node was away; the next life of the script delivers the last one's readings first."""
    station = Station(tmp_path)
    station.broker.crash(forget=False)
    first = station.source()
    numbers = [first.send({"temp": float(n)}) for n in range(300)]
    first.close()
    station.broker.restart()
    second = station.source()
    numbers += [second.send({"temp": 99.0}) for _ in range(3)]
    station.run(second)
    assert [number for number, _ in station.receiver.applied] == numbers
    assert second.boot > first.boot
    assert second.counters.lost == 0
    second.close()


def test_killed_again_and_again_nothing_is_lost(tmp_path: Path) -> None:
    """Twenty lives, each killed at a random moment, on a lossy network: all applied, once."""
    station = Station(tmp_path, loss=0.3)
    dice = random.Random(7)
    temps: list[float] = []
    for _ in range(20):
        source = station.source()
        for _ in range(dice.randrange(60)):
            temps.append(float(len(temps)))
            source.send({"temp": temps[-1]})
            if dice.random() < 0.2:
                station.clock.now += 1.0
                station.receiver.pump()
                source.pump()
        station.kill(source)
    last = station.source()
    station.run(last, seconds=20_000.0)
    assert station.receiver.temps() == temps
    assert last.counters.lost == 0
    last.close()


@pytest.mark.parametrize("kept", [0.0, 0.3, 0.7, 0.99])
def test_power_cut_costs_only_what_was_not_synced(tmp_path: Path, kept: float) -> None:
    """The unsynced end of a life is gone; nobody waits for it, and the next life goes on."""
    station = Station(tmp_path)
    source = station.source()
    first = [source.send({"temp": 1.0}) for _ in range(30)]
    station.receiver.pump()  # the node has them, and the source will never hear of it
    station.kill(source)
    (path,) = tmp_path.glob("*.spool")
    os.truncate(path, int(path.stat().st_size * kept))
    again = station.source()
    second = [again.send({"temp": 2.0}) for _ in range(5)]
    station.run(again)
    assert [number for number, _ in station.receiver.applied] == first + second
    assert again.counters.lost == again.counters.bad_acks == 0
    again.close()


def test_broker_that_forgets_everything_costs_only_time(tmp_path: Path) -> None:
    """A PUBACK is no promise: the broker dies with its queue, and the readings come anyway."""
    station = Station(tmp_path)
    source = station.source()
    numbers = [source.send({"temp": float(n)}) for n in range(400)]
    station.broker.crash(forget=True)
    station.broker.restart()
    station.run(source)
    assert [number for number, _ in station.receiver.applied] == numbers
    assert source.counters.lost == 0
    source.close()


def test_full_spool_refuses_and_the_number_is_not_used_up(tmp_path: Path) -> None:
    """The script learns it, the counter too, and no gap appears in the numbers."""
    station = Station(tmp_path)
    station.broker.crash(forget=False)
    source = station.source(spool_bytes_max=65_536)
    sent: list[ReadingNumber] = []

    def fill() -> None:
        while True:
            sent.append(source.send({"temp": 1.0}))

    with pytest.raises(SpoolFullError, match="check that the node runs"):
        fill()
    assert source.counters.refused == 1
    station.broker.restart()
    station.run(source)
    sent.append(source.send({"temp": 2.0}))
    station.run(source)
    assert [number for number, _ in station.receiver.applied] == sent
    assert [number.seq for number in sent] == list(range(1, len(sent) + 1))
    source.close()


def test_backlog_of_thirty_lives_takes_two_acknowledgements(tmp_path: Path) -> None:
    """A boot for each reading, and one boot a commit: cron's scripts never caught up."""
    station = Station(tmp_path)
    first = station.source()
    first.send({"temp": 0.0})
    station.receiver.pump()  # applied, and …
    station.kill(first)
    station.broker.crash(forget=True)  # … its acknowledgement is lost: it must keep its number
    station.broker.restart()
    station.receiver.pump()  # it is back before anything is sent again
    for n in range(1, 30):
        life = station.source()
        life.send({"temp": float(n)})
        station.kill(life)
    last = station.source()
    last.send({"temp": 30.0})
    for _ in range(2):
        last.pump()
        station.receiver.pump()
    last.pump()
    assert last.drained()
    assert station.receiver.temps() == [float(n) for n in range(31)]
    assert last.counters.renumbered == 30
    assert last.counters.lost == 0
    last.close()


def test_disk_without_room_to_join_lives_brings_them_one_by_one(tmp_path: Path) -> None:
    """Joining needs as much room again; where there is none, slowly is better than never."""
    station = Station(tmp_path)
    for n in range(5):
        life = station.source()
        life.send({"temp": float(n)})
        station.kill(life)
    last = station.source()

    def full(*_: object) -> int:
        raise SpoolError(errno.ENOSPC, "no room")

    last._spool.renumber = full  # type: ignore[method-assign]
    station.run(last)
    assert station.receiver.temps() == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert last.counters.faults == 1
    assert last.counters.renumbered == last.counters.lost == 0
    last.close()


def test_dropped_readings_leave_no_gap_for_the_node_to_wait_at(tmp_path: Path) -> None:
    """What had to go is sent as a reading without values: counted, in order, never stuck."""
    station = Station(tmp_path)
    station.broker.crash(forget=False)
    source = station.source(spool_bytes_max=65_536, drop_oldest=True)
    sent = [source.send({"temp": 1.0}) for _ in range(3_000)]
    station.broker.restart()
    station.run(source, seconds=20_000.0)
    assert [number for number, _ in station.receiver.applied] == sent
    empty = [number for number, values in station.receiver.applied if not values]
    assert len(empty) == source.counters.lost > 0
    assert station.receiver.applied[-1] == (sent[-1], {"temp": 1.0})
    source.close()


def test_reading_that_cannot_be_encoded_changes_nothing(tmp_path: Path) -> None:
    """A NaN is the script's mistake: it is told, and the next reading has the next number."""
    station = Station(tmp_path)
    source = station.source()
    assert source.send({"temp": 1.0}).seq == 1
    with pytest.raises(ValueError, match="JSON"):
        source.send({"temp": float("nan")})
    assert source.send({"temp": 2.0}).seq == 2
    station.run(source)
    assert len(station.receiver.applied) == 2
    source.close()


@pytest.mark.parametrize(
    "payload", [b"", b"nonsense", b"[1]", b"[9999999999999999, 1, 0]", b"[1, 2]"]
)
def test_bad_acknowledgement_frees_nothing(tmp_path: Path, payload: bytes) -> None:
    """Nobody can make a source forget a reading it never sent, nor stop it with rubbish."""
    station = Station(tmp_path)
    source = station.source()
    source.send({"temp": 1.0})
    station.receiver.link.publish("ack", payload)
    source.pump()
    assert source.counters.bad_acks == 1
    assert source.pending == 1
    station.run(source)
    assert len(station.receiver.applied) == 1
    source.close()


def test_encoder_that_cannot_say_lost_is_found_out_at_once(tmp_path: Path) -> None:
    """Not on the day the spool overflows: the source is not even made, and no boot is counted."""

    def picky(*fields: Any) -> bytes:
        if not fields[3]:
            raise ValueError("a reading needs values")
        return encode_reading(*fields)

    link = MemoryLink(MemoryBroker(), "sensor")
    with pytest.raises(ValueError, match="needs values"):
        Source(config(tmp_path), link, picky, decode_reading, decode_ack)
    assert list(tmp_path.iterdir()) == []


def test_two_scripts_cannot_share_a_folder(tmp_path: Path) -> None:
    """They would give two readings the same number; the first goes on undisturbed."""
    station = Station(tmp_path)
    source = station.source()
    with pytest.raises(SpoolError, match="give each script its own folder"):
        station.source()
    source.send({"temp": 1.0})
    station.run(source)
    assert len(station.receiver.applied) == 1
    source.close()


@pytest.mark.parametrize(("sync_every", "left"), [(1, 0), (32, 10)])
def test_sync_per_reading_leaves_nothing_to_a_power_cut(
    tmp_path: Path, sync_every: int, left: int
) -> None:
    """Told to, every `send` syncs before it returns; by default a group waits a second at most."""
    station = Station(tmp_path)
    source = station.source(sync_every=sync_every)
    for _ in range(10):
        source.send({"temp": 1.0})
    assert source._spool.unsynced == left
    station.clock.now += 1.0
    source.pump()
    assert source._spool.unsynced == 0
    source.close()


def test_thousand_readings_over_mosquitto_survive_its_death(tmp_path: Path) -> None:
    """The broker is killed in the middle and forgets it all; 1,000 readings are applied once."""
    with Mosquitto(tmp_path / "broker") as broker:
        links = [
            BackgroundLink(
                MqttOptions(
                    client_id=name,
                    port=broker.port,
                    reconnect_first_s=0.02,
                    reconnect_most_s=0.1,
                )
            )
            for name in ("node", "sensor")
        ]
        receiver = Receiver(links[0])
        over = threading.Event()

        def serve() -> None:
            while not over.is_set():
                receiver.pump(0.05)

        node = threading.Thread(target=serve)
        node.start()
        try:
            settings = config(tmp_path / "spool", background=True, resend_s=0.3)
            with Source(settings, links[1], encode_reading, decode_reading, decode_ack) as source:
                numbers = [source.send({"temp": float(n)}) for n in range(500)]
                broker.kill()
                numbers += [source.send({"temp": float(n)}) for n in range(500, 800)]
                broker.start()
                numbers += [source.send({"temp": float(n)}) for n in range(800, 1_000)]
                assert source.drained(WAIT_S)
        finally:
            over.set()
            node.join(WAIT_S)
            receiver.link.stop()
    assert [number for number, _ in receiver.applied] == numbers
    assert [values["temp"] for _, values in receiver.applied] == list(range(1_000))
    assert source.counters.lost == source.counters.refused == 0


def test_background_thread_ends_with_the_source(tmp_path: Path) -> None:
    """Without a broker, too; a thread that was just knocking at its door ends by itself."""
    before = set(threading.enumerate())
    link = BackgroundLink(MqttOptions(client_id="sensor", port=1, reconnect_first_s=0.02))
    settings = config(tmp_path, background=True)
    with Source(settings, link, encode_reading, decode_reading, decode_ack) as source:
        source.send({"temp": 1.0})
        assert not source.drained()
        ours = set(threading.enumerate()) - before
    left = {*ours, *threading.enumerate()} - before
    for thread in left:
        thread.join(timeout=30)
    assert ours
    assert not any(thread.is_alive() for thread in left)
