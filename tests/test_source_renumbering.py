"""False clocks, new cards, old ones put back: each reading is applied once, whatever its boot."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.rig import TOPICS, Rig
from support.source_station import Clock, Station

from edge_opid.node.journal_records import Accepted, unpack_record
from edge_opid.source import (
    ReadingNumber,
    Source,
    decode_ack,
    decode_reading,
    encode_reading,
    settings_for,
)
from edge_opid.testing import MemoryBroker, MemoryLink
from edge_opid.wire import Channel

IN_1970, IN_2026, IN_2040 = 5.0, 1.79e9, 2.21e9


def live(station: Station, card: Path, at: float, temps: range, *, heard: bool = True) -> Source:
    """One life of the script on this card, which begins at this time by its clock."""
    station.folder, station.clock.now = card, at
    source = station.source()
    for temp in temps:
        source.send({"temp": float(temp)})
    if heard:
        station.run(source, seconds=20_000.0)
    return source


def test_first_life_in_1970_on_a_new_card_loses_nothing(tmp_path: Path) -> None:
    """The node knows a boot of today; the new card's first life does not know the time yet."""
    station = Station(tmp_path)
    live(station, tmp_path / "old", IN_2026, range(10)).close()
    first = live(station, tmp_path / "new", IN_1970, range(10, 20), heard=False)
    station.receiver.pump()  # the answer waits at the broker for the next life
    station.kill(first)
    second = live(station, tmp_path / "new", IN_2026 + 60, range(20, 30))
    assert station.receiver.temps() == [float(temp) for temp in range(30)]
    assert second.counters.renumbered == 20
    assert second.counters.lost == second.counters.bad_acks == 0
    second.close()


def test_life_in_1970_is_applied_before_the_clock_is_right(tmp_path: Path) -> None:
    """Nobody waits for NTP: the first life itself goes on above the boot that the node knows."""
    station = Station(tmp_path)
    live(station, tmp_path / "old", IN_2026, range(10)).close()
    source = live(station, tmp_path / "new", IN_1970, range(10, 20))
    source.send({"temp": 20.0})
    station.run(source)
    assert station.receiver.temps() == [float(temp) for temp in range(21)]
    assert source.counters.renumbered == 10
    source.close()


def test_life_in_2040_does_not_make_later_readings_copies(tmp_path: Path) -> None:
    """One week with a wrong clock must not cost fourteen years of readings."""
    station = Station(tmp_path)
    live(station, tmp_path / "old", IN_2040, range(10)).close()
    source = live(station, tmp_path / "new", IN_2026, range(10, 20))
    assert station.receiver.temps() == [float(temp) for temp in range(20)]
    assert source.counters.lost == 0
    source.close()


def test_cards_that_start_in_the_same_second_of_1970_are_told_apart(tmp_path: Path) -> None:
    """Two cards of one image, both before NTP: the second's readings are not the first's copies."""
    station = Station(tmp_path)
    for card in range(6):
        live(station, tmp_path / str(card), IN_1970, range(10 * card, 10 * card + 10)).close()
    assert station.receiver.temps() == [float(temp) for temp in range(60)]


def test_card_put_back_brings_only_what_was_never_applied(tmp_path: Path) -> None:
    """Its last acknowledgements were lost, another card has sent since: none twice, none lost."""
    station = Station(tmp_path)
    first = live(station, tmp_path / "first", IN_2026, range(10))
    for temp in range(10, 20):
        first.send({"temp": float(temp)})
    station.receiver.pump()
    station.broker.crash(forget=True)  # with the acknowledgements of 10 to 19
    station.broker.restart()
    for temp in range(20, 30):
        first.send({"temp": float(temp)})
    station.kill(first)
    station.broker.crash(forget=True)  # with the readings 20 to 29
    station.broker.restart()
    live(station, tmp_path / "second", IN_2026 + 60, range(30, 40)).close()
    back = live(station, tmp_path / "first", IN_2026 + 120, range(40, 50))
    applied = [*range(20), *range(30, 40), *range(20, 30), *range(40, 50)]
    assert station.receiver.temps() == [float(temp) for temp in applied]
    assert back.counters.renumbered == 20
    assert back.counters.lost == 0
    back.close()


@pytest.mark.parametrize("seed", range(15))
def test_cards_and_clocks_in_any_order_apply_each_reading_once(tmp_path: Path, seed: int) -> None:
    """Three cards take turns, with any clock, killed or not, on a network that loses a third."""
    dice = random.Random(seed)
    station = Station(tmp_path, loss=0.3, seed=seed)
    sent: dict[Path, list[float]] = {}
    for turn in range(8):
        card = tmp_path / str(dice.randrange(3))
        temps = range(100 * turn, 100 * turn + dice.randrange(40))
        sent.setdefault(card, []).extend(map(float, temps))
        at = dice.choice([IN_1970, IN_2026, IN_2040]) + turn
        source = live(station, card, at, temps, heard=False)
        for _ in range(dice.randrange(30)):
            station.clock.now += 0.5
            station.receiver.pump()
            source.pump()
        station.kill(source) if dice.random() < 0.5 else source.close()
    station.receiver.loss = 0.0
    for card in sent:
        live(station, card, dice.choice([IN_1970, IN_2040]), range(0)).close()
    applied = station.receiver.temps()
    assert sorted(applied) == sorted(temp for temps in sent.values() for temp in temps)
    for temps in sent.values():
        assert [temp for temp in applied if temp in temps] == temps  # in its order, too


class Cut(BaseException):
    """The process ends here."""


class FailingDisk:
    """Counts the changes of the disk and lets the `step`-th fail; after a death, the rest too."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, step: int, error: BaseException) -> None:
        self._step, self._error, self.changes = step, error, 0
        for name in ("open", "write", "fsync", "fdatasync", "replace", "rename", "unlink"):
            monkeypatch.setattr(os, name, partial(self._change, getattr(os, name)))

    def _change(self, real: Callable[..., Any], *args: Any, **options: Any) -> Any:
        self.changes += 1
        dead = isinstance(self._error, Cut) and self.changes > self._step
        if dead or self.changes == self._step:
            raise self._error
        return real(*args, **options)


def behind(folder: Path) -> tuple[Station, Source]:
    """A source of several segments that will hear at its next turn that its boot is over."""
    station = Station(folder)
    live(station, folder / "other", IN_2026, range(10)).close()
    station.options = {"spool_bytes_max": 16 * 256}
    source = live(station, folder / "card", IN_1970, range(10, 22), heard=False)
    station.receiver.pump()
    return station, source


def test_death_in_the_middle_of_renumbering_changes_no_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before any one change of the disk, the next life has all old numbers or all new."""
    for step in range(1, 200):
        station, source = behind(tmp_path / str(step))
        with monkeypatch.context() as patch:
            FailingDisk(patch, step, Cut())
            try:
                source.pump()
                break
            except Cut:
                pass
        station.kill(source)
        again = live(station, station.folder, IN_1970, range(22, 25))
        assert station.receiver.temps() == [float(temp) for temp in range(25)], step
        assert again.counters.lost == 0
        assert list(station.folder.glob("*.new")) == []
        again.close()
    station.kill(source)
    assert 30 < step < 199


def test_disk_that_fails_once_while_renumbering_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error at any one change of the disk: tried again, and nothing is lost or applied twice."""
    for step in range(1, 200):
        station, source = behind(tmp_path / str(step))
        with monkeypatch.context() as patch:
            disk = FailingDisk(patch, step, OSError(errno.EIO, "Input/output error"))
            source.pump()
        source.send({"temp": 22.0})
        station.run(source)
        station.kill(source)
        again = live(station, station.folder, IN_1970, range(23, 25))
        assert station.receiver.temps() == [float(temp) for temp in range(25)], step
        assert source.counters.lost == again.counters.lost == 0
        again.close()
        if disk.changes < step:
            break
    assert 30 < step < 199


def test_forged_boot_leaves_room_for_the_real_ones(tmp_path: Path) -> None:
    """A reading, or an answer, of the highest boot there is would leave nothing to go on with."""
    station = Station(tmp_path)
    highest = 2**53 - 1
    station.receiver._receive(b'[%d, 1, 0, {"temp": -1.0}, null]' % highest)
    source = live(station, tmp_path / "card", IN_2026, range(10))
    boot = source.boot
    source.send({"temp": 10.0})
    station.receiver.link.publish("ack", b"[%d, 10, %d]" % (boot, highest))
    station.run(source)
    assert station.receiver.temps() == [float(temp) for temp in range(11)]
    assert station.receiver.intake.counts["boot-too-far"] == 1
    assert source.counters.bad_acks == 1
    assert source.boot == boot
    source.close()


def test_forged_boot_within_reach_costs_a_new_number_and_nothing_else(tmp_path: Path) -> None:
    """Above 2106 each forged boot takes a step of 2²⁶ at most of the 2⁵² that are left."""
    station = Station(tmp_path)
    source = live(station, tmp_path / "card", IN_2026, range(10))
    for step in range(1, 20):
        station.receiver._receive(b"[%d, 1, 0, {}, null]" % (2**52 + step * 2**26))
        source.send({"temp": 9.0 + step})
        station.run(source)
    assert [temp for temp in station.receiver.temps() if temp is not None] == [
        float(temp) for temp in range(29)
    ]
    assert source.boot < 2**52 + 20 * 2**26
    source.close()


def test_acknowledgement_of_another_boot_frees_nothing(tmp_path: Path) -> None:
    """Higher or lower than anything in the spool, it is about readings that are not there."""
    station = Station(tmp_path)
    first = live(station, tmp_path / "card", IN_1970, range(10), heard=False)
    station.kill(first)
    station.broker.crash(forget=True)
    station.broker.restart()
    second = live(station, tmp_path / "card", IN_2026, range(10, 20), heard=False)
    for number in (
        ReadingNumber(7, 7),
        ReadingNumber(first.boot + 1, 99),
        ReadingNumber(second.boot, 10),
    ):
        station.receiver.link.publish("ack", b"[%d, %d, 0]" % number)
        second.pump()
    assert second.counters.acknowledged == 0
    station.run(second)
    assert station.receiver.temps() == [float(temp) for temp in range(20)]
    second.close()


class RealNode:
    """A whole node behind a broker in memory, and scripts that speak the real wire to it."""

    def __init__(self) -> None:
        self.rig, self.clock = Rig.make(commit_records=1), Clock()
        self.broker = MemoryBroker()
        self._link = MemoryLink(self.broker, "node")
        self._link.subscribe([str(TOPICS.to(Channel.READING, "box"))])
        self._link.start()

    def source(self, folder: Path, at: float) -> Source:
        self.clock.now = at
        settings = settings_for("farm", "n1", "box", folder, background=False)
        link = MemoryLink(self.broker, "box")
        codec = (encode_reading, decode_reading, decode_ack)
        return Source(settings, link, *codec, self.clock, self.clock).__enter__()

    def run(self, source: Source) -> None:
        for _ in range(1_000):
            if source.drained():
                return
            self.clock.now += 0.5
            while (delivery := self._link.poll(0.0)) is not None:
                self._link.acknowledge(delivery)
                self.rig.handle(delivery.topic, delivery.payload, 0, token=None)
            while self.rig.published:
                topic, payload, _ = self.rig.published.pop(0)
                self._link.publish(topic, payload)
        raise AssertionError(f"{source.pending} still pending")


def test_whole_node_learns_each_reading_once_whatever_the_clocks(tmp_path: Path) -> None:
    """The real wire and the real journal: cards of 2040, of 1970 and of today, and a restart."""
    node = RealNode()
    for place, at in enumerate([IN_2040, IN_1970, IN_2026, IN_1970]):
        with node.source(tmp_path / str(place % 3), at) as source:
            for temp in range(5):
                source.send({"a": 10.0 * place + temp}, "fresh")
            node.run(source)
    node.rig = node.rig.reborn()  # what it has committed is all it knows
    with node.source(tmp_path / "1", IN_1970) as source:
        source.send({"a": 40.0}, "fresh")
        node.run(source)
        assert source.counters.lost == source.counters.bad_acks == 0
    accepted = [each for each in map(unpack_record, node.rig.durable) if isinstance(each, Accepted)]
    sent = [10.0 * place + temp for place in range(4) for temp in range(5)]
    assert [each.values["a"] for each in accepted] == [*sent, 40.0]
    numbers = [(each.boot, each.seq) for each in accepted]
    assert numbers == sorted(set(numbers))
