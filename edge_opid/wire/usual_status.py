"""A status as nodes send it all day, each field looked at where it stands.

A gateway hears thousands of them at once after a wave of orders. The usual one says that its node
is online, and has versions, a time, counts, accuracies once it was given labels, and no list:
nothing is degraded, and nobody is silent. What is unusual is left to the way of all messages, which
also says what is wrong.
"""

from __future__ import annotations

from typing import Any

from edge_opid.wire.ids import as_ids
from edge_opid.wire.limits import LIMITS
from edge_opid.wire.messages import SCHEMA_VERSION, Status
from edge_opid.wire.schema import Field, NumberField, Whole

UNLABELLED = frozenset(
    ("v", "kind", "online", "layout_version", "model_version", "version", "time_ms", "counts")
)
KEYS = UNLABELLED, UNLABELLED | {"accuracy"}
_WHOLE, _RATE = Whole(), NumberField(low=0.0)


def read_usual_status(pairs: Any) -> Status | None:
    """The status in a map that came as pairs, with the usual keys, each once; or None."""
    if type(pairs) is not tuple or not 8 <= len(pairs) <= 9:
        return None
    found = dict(pairs)
    if len(found) != len(pairs) or found.keys() not in KEYS:
        return None
    online, time_ms = found["online"], found["time_ms"]
    layout, model, version = found["layout_version"], found["model_version"], found["version"]
    if (
        found["kind"] != Status.kind
        or type(online) is not bool
        or found["v"] != SCHEMA_VERSION
        or not _WHOLE.all_fit((found["v"], layout, model, version, time_ms))
    ):
        return None
    counts = _table(found["counts"], _WHOLE, LIMITS.counts_max)
    labelled = "accuracy" in found
    accuracy = _table(found["accuracy"], _RATE, LIMITS.reasons_max) if labelled else {}
    if counts is None or accuracy is None:
        return None
    return Status.unchecked(online, layout, model, time_ms, counts, accuracy, version)


def _table(pairs: Any, field: Field, at_most: int) -> dict[str, Any] | None:
    """The table of ids and numbers that came as pairs; None where it is not as usual."""
    if type(pairs) is not tuple or not 0 < len(pairs) <= at_most:
        return None
    names, values = zip(*pairs, strict=True)
    ids = as_ids(names)
    return dict(zip(ids, values, strict=True)) if ids and field.all_fit(values) else None
