"""One node: what it says, how accurate it was, how its sensors live, and what it refused."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from edge_opid.reasons import TABLES, Reason
from gateway.cli.output import percent
from gateway.registry import NodeKey, SensorRecord
from gateway.registry.history import HOUR_MS, MINUTE_MS, REFUSING, LifeRecord, best_accuracy
from gateway.web.answers import HTML, Answer
from gateway.web.book import Facts, View
from gateway.web.fleet import said_words, trouble
from gateway.web.site import Site

RANGES = {24: "24 hours", 7 * 24: "7 days", 90 * 24: "90 days", 730 * 24: "2 years"}
BY_MINUTE_H = 72  # a longer stretch has more minutes than a screen has columns
WIDTH = 1_000  # of a lane, in units of its own
MARGIN_MS = 2 * MINUTE_MS  # before the first event, as in charts.js
_REASONS: dict[str, Reason] = {
    each.value: each for table in reversed(TABLES) for each in table
}  # fmt: skip


def node_page(site: Site, request: Request) -> Response:
    """All that is known of one node."""
    view = site.view()
    key = site.key(request, view)
    introduced = key in view.fleet.nodes
    facts = view.node(key) if introduced else _listed(view, key)
    hours = hours_of(request)
    return site.page(
        request,
        "node.html",
        node=facts,
        id="/".join(key),
        introduced=introduced,
        said=site.said(key),
        accuracy_now=best_accuracy(facts["accuracy"]),
        trouble=trouble(facts),
        refusals=refusals(view, key) if introduced else [],
        lanes=lanes(site, view, key, hours) if introduced else [],
        changes=site.book.ask(lambda context: context.store.layout_changes(key)),
        hours=hours,
        ranges=RANGES,
        hearing=site.hearing,
    )


def _listed(view: View, key: NodeKey) -> Facts:
    """The node as the fleet's table lists it, also before it has ever come."""
    return next(each for each in view.nodes if (each["site"], each["node"]) == key)


def hours_of(request: Request) -> int:
    """How far back to look: one of the ranges."""
    text = request.query_params.get("hours", "24")
    return int(text) if text.isdecimal() and int(text) in RANGES else 24


def history(site: Site, request: Request) -> Response:
    """Accuracy, readings and refusals over time, with the changes; and the words of the page."""
    view = site.view()
    key, hours = site.key(request, view), hours_of(request)
    since = int(time.time() * 1000) // HOUR_MS - hours + 1
    series = site.book.ask(
        lambda context: (
            by_minute(context.store.minutes_of(key, since))
            if hours <= BY_MINUTE_H
            else by_hour(context.store.hours_of(key, since))
        )
    )
    marks = site.book.ask(lambda context: context.store.layout_changes(key))
    series["changes"] = [
        {"at_ms": at_ms, "change": change or None, "layout": version}
        for version, at_ms, change in marks
        if at_ms >= since * HOUR_MS
    ]
    series |= {"since": since * HOUR_MS // 1000, "cells": cells(site, view, key)}
    return Answer.json(series).to(request)


def by_minute(records: Iterable[Any]) -> Facts:
    """One column a minute; times are seconds, as the chart wants them."""
    found: Facts = {"times": [], "accuracy": [], "readings": [], "learned": [], "refused": []}
    for record in records:
        for minute, sample in record.samples():
            found["times"].append((record.hour * HOUR_MS + minute * MINUTE_MS) // 1000)
            for name in ("accuracy", "readings", "learned", "refused"):
                found[name].append(getattr(sample, name))
    return found


def by_hour(records: Iterable[Any]) -> Facts:
    """One column an hour; counts are still a minute's."""
    found: Facts = {"times": [], "accuracy": [], "readings": [], "learned": [], "refused": []}
    for record in records:
        found["times"].append(record.hour * HOUR_MS // 1000)
        found["accuracy"].append(record.accuracy)
        for name in ("readings", "learned", "refused"):
            found[name].append(getattr(record, name) / 60)
    return found


def cells(site: Site, view: View, key: NodeKey) -> dict[str, Any]:
    """The words of the page that change."""
    facts = _listed(view, key)
    counts = view.counts(key)
    return {
        "says": said_words(site.said(key)),
        "accuracy": percent(best_accuracy(facts["accuracy"])),
        "trouble": trouble(facts) or "none",
        "heard": facts["heard_ms"],
        "readings": str(counts.get("readings", 0)),
        "learned": str(counts.get("learned", 0)),
    }


# -- lanes -----------------------------------------------------------------------------------------


class Segment(NamedTuple):
    """A stretch of a lane: from where to where, in which state, and whose."""

    x: float
    width: float
    state: str
    words: str


class Lane(NamedTuple):
    """The sensors of one role, one after another."""

    role: str
    now: str
    segments: list[Segment]


def lanes_part(site: Site, request: Request) -> Response:
    """The lanes alone, for the script that keeps them up to date."""
    view = site.view()
    key = site.key(request, view)
    text = site.render(request, "lanes.html", lanes=lanes(site, view, key, hours_of(request)))
    return Answer.of(text, HTML).to(request)


def lanes(site: Site, view: View, key: NodeKey, hours: int) -> list[Lane]:
    """One lane for each role, by name; like the charts, they begin where there is something."""
    events = list(site.book.ask(lambda context: context.store.lives_of(key)))
    sensors, until = view.ordered_sensors(key), int(time.time() * 1000)
    known = [*(each.at_ms for each in events), *(each.since_ms for each in sensors)]
    since = max(until - hours * HOUR_MS, min(known, default=until) - MARGIN_MS)
    return drawn_lanes(sensors, events, min(since, until - MARGIN_MS), until)


def drawn_lanes(
    sensors: Iterable[SensorRecord], events: Iterable[LifeRecord], since_ms: int, until_ms: int
) -> list[Lane]:
    """What the sensors of each role were, between two moments."""
    by_sensor: dict[str, list[LifeRecord]] = {}
    for event in events:
        by_sensor.setdefault(event.sensor, []).append(event)
    found: dict[str, Lane] = {}
    for sensor in sensors:
        lane = found.setdefault(sensor.role, Lane(sensor.role, "", []))
        if sensor.state != "retired":
            found[sensor.role] = lane = lane._replace(now=f"{sensor.id}: {sensor.state}")
        states = [(each.at_ms, each) for each in by_sensor.get(sensor.id, ())]
        lane.segments.extend(_segments(sensor, states, since_ms, until_ms))
    return [found[role] for role in sorted(found)]


def _segments(
    sensor: SensorRecord,
    states: list[tuple[int, LifeRecord]],
    since_ms: int,
    until_ms: int,
) -> Iterable[Segment]:
    """A sensor's states one after another; one without a history is as it is since it became so."""
    turns = [(at, str(each.state), each.role, each.reason) for at, each in states]
    turns = turns or [(sensor.since_ms, str(sensor.state), sensor.role, sensor.reason)]
    ends = [at for at, *_ in turns[1:]] + [until_ms]
    for (at, state, role, reason), over in zip(turns, ends, strict=True):
        begin, end = max(at, since_ms), min(over, until_ms)
        if state != "retired" and role == sensor.role and end > begin:
            scale = WIDTH / (until_ms - since_ms)
            replaced = f", replaces {sensor.replaces}" if sensor.replaces else ""
            words = f"{sensor.id} {state}{replaced}" + (f": {reason}" if reason else "")
            yield Segment((begin - since_ms) * scale, max(1.0, (end - begin) * scale), state, words)


# -- refusals --------------------------------------------------------------------------------------


def refusals(view: View, key: NodeKey) -> list[Facts]:
    """What the node did not take, by reason; and what the gateway did not take of it, the last of
    each as an example (where `gateway.status_file` is set).
    """
    found = [
        {"by": "node", "reason": name, "count": count, "example": "", **_meaning(name)}
        for name, count in view.counts(key).items()
        if name in REFUSING and count
    ]
    topic = f"/{key[0]}/{key[1]}/"
    for name, last in ((view.status.get("own") or {}).get("noted") or {}).items():
        if topic in last.get("topic", ""):
            example = f"{last['topic']} {last['first']}"
            meaning = {"what": last["why"], "do": last["do"]}
            found.append(
                {"by": "gateway", "reason": name, "count": last["count"], "example": example}
                | meaning
            )
    return sorted(found, key=lambda each: -each["count"])


def _meaning(name: str) -> Facts:
    reason = _REASONS.get(name)
    return {"what": reason.what if reason else "", "do": reason.do if reason else ""}
