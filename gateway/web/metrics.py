r"""The gateway's book for Prometheus, in its text format. No I/O.

Each metric has one line here; the alert rules and the dashboard in `docs/prometheus` use these
names, and tests hold all three together. Counters of a node begin anew when its process does, which
Prometheus expects of a counter.

>>> from gateway.web.metrics import Metric, text_of
>>> print(text_of([Metric("opid_x", "gauge", "An x.", [({"node": 'a"b'}, 1.5)])]))
# HELP opid_x An x.
# TYPE opid_x gauge
opid_x{node="a\"b"} 1.5
<BLANKLINE>
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from typing import NamedTuple

from gateway.registry.history import REFUSING
from gateway.web.book import Facts, View

Sample = tuple[Mapping[str, str], float]
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metric(NamedTuple):
    """One metric with all its samples."""

    name: str
    kind: str
    help: str
    samples: Iterable[Sample]


def text_of(metrics: Iterable[Metric]) -> str:
    """The text that Prometheus reads."""
    return "".join(line + "\n" for metric in metrics for line in _lines(metric))


def _lines(metric: Metric) -> Iterator[str]:
    yield f"# HELP {metric.name} {metric.help}"
    yield f"# TYPE {metric.name} {metric.kind}"
    for labels, value in metric.samples:
        inner = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
        yield f"{metric.name}{f'{{{inner}}}' if inner else ''} {value:.15g}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def metrics_of(view: View) -> str:
    """Everything there is to know of the fleet at this moment."""
    return text_of((*_gateway(view), *_fleet(view), *_nodes(view)))


def _gateway(view: View) -> Iterator[Metric]:
    status, own = view.status, view.status.get("own") or {}
    installed = {"version": version("edge-opid")}
    yield Metric("opid_gateway_build_info", "gauge", "The version of the pages.", [(installed, 1)])
    up = float(status["running"])
    yield Metric("opid_gateway_up", "gauge", "Whether a gateway serves the database.", [({}, up)])
    if "connected" in own:
        connected: list[Sample] = [({}, float(own["connected"]))]
        yield Metric(
            "opid_gateway_connected", "gauge", "Whether the gateway is connected to the broker.",
            connected,
        )  # fmt: skip
    counted = [({"reason": each}, float(n)) for each, n in own.get("counts", {}).items()]
    yield Metric(
        "opid_gateway_events_total", "counter",
        "What the gateway counted, by reason (docs/refusals.md).", counted,
    )  # fmt: skip
    for name, words, key in (
        ("opid_gateway_commands_open", "Commands waiting for the gateway.", "open_commands"),
        (
            "opid_gateway_orders_unreported",
            "Orders that nodes have not reported.",
            "unreported_orders",
        ),
    ):
        yield Metric(name, "gauge", words, [({}, float(status[key]))])
    open_changes: list[Sample] = [({}, float(len(status["open_changes"])))]
    yield Metric(
        "opid_changes_open", "gauge", "Changes that are still collecting labels.", open_changes
    )


def _fleet(view: View) -> Iterator[Metric]:
    sensors = [({"state": each}, float(n)) for each, n in view.status["sensors"].items()]
    yield Metric("opid_sensors", "gauge", "Sensors of the fleet by state.", sensors)
    nodes = [({"state": each}, float(n)) for each, n in view.status["nodes"].items()]
    yield Metric("opid_nodes", "gauge", "Nodes of the fleet by state.", nodes)


def _nodes(view: View) -> Iterator[Metric]:
    known = [(_labels(facts), facts) for facts in view.nodes if facts["introduced"]]
    counts = [(labels, view.counts((f["site"], f["node"]))) for labels, f in known]

    def each(name: str, words: str, key: str, scale: float = 1.0) -> Metric:
        return Metric(name, "gauge", words, [(la, scale * float(f[key] or 0)) for la, f in known])

    yield each("opid_node_online", "Whether the node is connected.", "online")
    yield each(
        "opid_node_last_heard_timestamp_seconds", "When the node was last heard.", "heard_ms", 1e-3
    )
    yield each("opid_node_model_version", "The order whose weights it holds.", "model")
    behind = [(la, float(f["order"] - f["reported_order"])) for la, f in known]
    yield Metric("opid_node_orders_behind", "gauge", "Orders it has not reported.", behind)
    degraded = [(la, float(len(f["degraded"]))) for la, f in known]
    yield Metric("opid_node_troubles", "gauge", "Reasons why the node is not well.", degraded)
    yield Metric(
        "opid_node_accuracy_ratio", "gauge", "Accuracy on its last labels, by predictor.",
        [({**la, "predictor": p}, share) for la, f in known for p, share in f["accuracy"].items()],
    )  # fmt: skip
    for name, words, key in (
        ("opid_node_readings_total", "Readings accepted.", "readings"),
        ("opid_node_predictions_total", "Predictions published.", "predictions"),
        ("opid_node_labels_learned_total", "Labelled instances learned.", "learned"),
    ):
        yield Metric(name, "counter", words, [(la, float(c.get(key, 0))) for la, c in counts])
    refused = [
        ({**la, "reason": reason}, float(count))
        for la, counted in counts
        for reason, count in counted.items()
        if reason in REFUSING
    ]
    words = "Messages, values and labels refused, by reason (docs/refusals.md)."
    yield Metric("opid_node_refused_total", "counter", words, refused)


def _labels(facts: Facts) -> dict[str, str]:
    return {"site": facts["site"], "node": facts["node"], "group": facts["group"] or ""}
