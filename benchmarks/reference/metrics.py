"""Every metric of `/metrics`: what the pages would say of a small fleet that has everything."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any, cast

from benchmarks.reference.tables import code, head, table
from gateway.registry.history import REFUSING
from gateway.web.book import View
from gateway.web.metrics import metrics_of

ABOUT = """\
`/metrics` of [the pages](../web.md#for-programs) is for Prometheus. [Alert rules and a
dashboard](../prometheus/README.md) use these names."""
NODE: dict[str, Any] = {
    "site": "s", "node": "n", "group": "g", "introduced": True, "online": True, "heard_ms": 1,
    "model": 1, "order": 1, "reported_order": 1, "degraded": [], "accuracy": {"own": 0.9},
}  # fmt: skip
STATUS: dict[str, Any] = {
    "running": True, "own": {"connected": True, "counts": {"any": 1}}, "open_commands": 0,
    "unreported_orders": 0, "open_changes": [], "sensors": {"active": 1}, "nodes": {"online": 1},
}  # fmt: skip


def page() -> str:
    """The whole page."""
    counted = dict.fromkeys(REFUSING, 1)
    view = SimpleNamespace(status=STATUS, nodes=[NODE], counts=lambda _key: counted)
    text = metrics_of(cast(View, view))
    rows = []
    for name, words in re.findall(r"# HELP (\w+) (.*)", text):
        (kind,) = re.findall(rf"# TYPE {name} (\w+)", text)
        labels = re.search(rf"^{name}{{(.*?)}} ", text, re.M)
        keys = re.findall(r"(\w+)=", labels[1]) if labels else []
        rows.append((code(name), kind, ", ".join(map(code, keys)), words))
    return head("Metrics", ABOUT) + "\n" + table(("metric", "kind", "labels", "what it is"), rows)
