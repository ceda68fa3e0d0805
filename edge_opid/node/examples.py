"""The labelled instances that the gateway wants to see, for its E-stage.

The node has joined, deduplicated and labelled them already, whoever sent the values and whenever
the label came. So it reports them, and the gateway need not listen to every reading.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from edge_opid.node.recent import Entry
from edge_opid.wire import Example, InstanceId


@dataclass(slots=True)
class ExampleReporter:
    """How many examples are still owed; each order says it anew. Part of the durable state.

    Only what the present layout can use is reported, and counts:

    - An instance that was joined in a former layout has no values of the sensors just deployed,
      and they are what the batch is for. Its late label is learned, but not reported.
    - An instance may have been open when the order came: values of sensors that have left the
      layout stay out of its example; and where no other is left, there is none.

    >>> gathering = ExampleReporter(owed=1)
    >>> entry = Entry.of(7, (InstanceId("attic", 1, 5),), {"temp": 21.5}, {}, True, 2)
    >>> [example] = gathering.report(entry, entry.values, "fresh", 2, ["temp", "co2"])
    >>> example.values, example.label, gathering.owed
    ({'temp': 21.5}, 'fresh', 0)
    >>> gathering.report(entry, entry.values, "fresh", 2, ["temp", "co2"])
    []
    """

    owed: int = 0

    def report(
        self,
        entry: Entry,
        values: Mapping[str, float],
        label: str,
        layout_version: int,
        sensors: Collection[str],
    ) -> list[Example]:
        """The example of an instance that was just learned, if it is one that is owed.

        `values` are the entry's, which whoever learned them has at hand; `sensors` are those of
        the layout `layout_version`.
        """
        if not self.owed or entry.layout_version != layout_version:
            return []
        known = {sensor: value for sensor, value in values.items() if sensor in sensors}
        if not known:
            return []
        self.owed -= 1
        number: InstanceId = entry.numbers[-1]  # as in its prediction
        return [Example(number, layout_version, entry.time_ms, known, label)]
