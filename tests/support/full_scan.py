"""The oracle of the agenda: every question answered by looking at every record.

`FullScan` is what a tick did before there was an index, and needs no bookkeeping but two sets that
are state, not index: whose layout nobody has looked at since a sensor of it changed, and which
sensors could not be retired at the last tick.
"""

# ruff: noqa: ARG002 - whoever looks at everything needs no hints
from __future__ import annotations

from gateway.decisions.orders import OrderPublisher
from gateway.registry import ChangeState, SensorState
from gateway.registry.agenda import Agenda
from gateway.registry.fleet import Fleet
from gateway.registry.lifecycle import UNDER_WAY


class FullScan(Agenda):
    """Looks at all that the fleet has, at every question."""

    fleet: Fleet

    def __init__(self):
        self.touched, self.kept, self.turn = set(), [], 0
        super().__init__()

    def note_sensor(self, before, sensor):
        self.touched.add((sensor.site, sensor.node))

    def note_layout(self, before, layout):
        if before is None:
            self.touched.add((layout.site, layout.node))

    def note_node(self, before, node):
        pass

    def note_reported(self, node, layout):
        pass

    def note_change(self, change):
        pass

    def forget_node(self, key, sensors):
        self.touched.discard(key)

    def forget_layout(self, layout):
        pass

    @property
    def sensors(self):
        return [each for some in self.fleet.sensors.values() for each in some.values()]

    def take_overdue(self, silent_before_ms, ends_before_ms):
        found = {}
        for each in self.sensors:
            silent = each.state == SensorState.SILENT and silent_before_ms is not None
            ends = each.end_of_life_ms is not None and ends_before_ms is not None
            ends = ends and each.state != SensorState.RETIRED
            if (silent and each.since_ms < silent_before_ms) or (
                ends and each.end_of_life_ms < ends_before_ms
            ):
                found.setdefault((each.site, each.node), set()).add(each.id)
        return found

    def keep(self, sensor):
        self.kept.append(sensor.key)

    def release_kept(self):
        pass

    def take_released(self):
        kept, self.kept = self.kept, []
        return kept

    @property
    def measured(self):
        return {each.key: each for each in self.sensors if each.state in UNDER_WAY}

    @measured.setter
    def measured(self, _):
        pass

    @property
    def measured_turn(self):
        self.turn += 1
        return self.turn

    @measured_turn.setter
    def measured_turn(self, _):
        pass

    def take_stirred(self):
        return set(self.fleet.nodes)

    def take_moved(self, before_ms, at_most, moved_ms):
        settled = sorted((moved_ms(key), key) for key in self.touched if moved_ms(key) < before_ms)
        found = [key for _, key in settled[:at_most]]
        self.touched.difference_update(found)
        return found

    def take_changes(self, waited_before_ms, over_before_ms):
        return sorted(self.fleet.changes)

    def open_change(self, signature):
        for number, each in sorted(self.fleet.changes.items()):
            same = (each.group, each.columns, each.arrived) == signature
            if same and each.state == ChangeState.GATHERING:
                return number
        return None

    def all_reported(self, change):
        nodes, layouts = self.fleet.nodes, self.fleet.layouts
        members = [key for key, layout in layouts.items() if layout.change == change]
        return all(nodes[key].reported_layout >= layouts[key].version for key in members)


class ScanningPublisher(OrderPublisher):
    """Looks at every order that is waited for, at every tick."""

    def __init__(self, *parts):
        self.due = {}
        super().__init__(*parts)

    def _await(self, key, now_ms, wait_ms):
        self._waiting[key] = wait_ms
        self.due[key] = now_ms + wait_ms

    def shift(self, step_ms):
        self.due = {key: due_ms + step_ms for key, due_ms in self.due.items()}

    def take_due(self, now_ms):
        found = []
        for key in sorted(self._waiting):
            if self.due[key] > now_ms:
                continue
            if self.is_reported(key):
                del self._waiting[key]
            elif self._fleet.nodes[key].online and self.is_signed(key):
                self._await(key, now_ms, min(2 * self._waiting[key], self._longest_ms))
                found.append(self._publication(key))
        return found
