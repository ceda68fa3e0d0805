"""The fleet: site, group, node; and the words that keep its table up to date."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from gateway.cli.output import percent
from gateway.registry.history import best_accuracy
from gateway.registry.text import listed
from gateway.web.answers import HTML, Answer
from gateway.web.book import SPARK_HOURS, Facts, View
from gateway.web.site import Site

SITE_OTHER = "of no group"
LIVE_S = 2.0
SPARK_WIDTH, SPARK_HEIGHT = 96, 20


def fleet_page(site: Site, request: Request) -> Response:
    """Site, group, node."""
    view = site.view()

    def make() -> Answer:
        sites: dict[str, dict[str, list[Facts]]] = {}
        for facts in view.nodes:
            groups = sites.setdefault(facts["site"], {})
            groups.setdefault(facts["group"] or SITE_OTHER, []).append(fleet_row(site, view, facts))
        text = site.render(
            request, "fleet.html", sites=sites, status=view.status, hearing=site.hearing
        )
        return Answer.of(text, HTML)

    return site.rendered.get(("fleet", view.number, site.hearing), make).to(request)


def fleet_row(site: Site, view: View, facts: Facts) -> Facts:
    """A node as a line of the fleet's table."""
    key = facts["site"], facts["node"]
    states = [(each.role, str(each.state)) for each in view.ordered_sensors(key)]
    return {
        "id": "/".join(key),
        "node": facts["node"],
        "online": facts["online"],
        "said": site.said(key),
        "spark": sparkline(view.accuracies.get(key, ()), view.hour),
        "accuracy_now": best_accuracy(facts["accuracy"]),
        "dots": [each for each in states if each[1] != "retired"],
        "trouble": trouble(facts),
        "heard_ms": facts["heard_ms"],
    }


def trouble(facts: Facts) -> str:
    """What is wrong with a node, in a sentence; nothing where nothing is."""
    if not facts["introduced"]:
        return "never heard"
    parts = [] if facts["online"] else ["offline"]
    parts += facts["degraded"]
    if facts["order"] > facts["reported_order"]:
        parts.append(f"has not reported order {facts['order']}")
    parts += facts["doubts"]
    return listed(parts) if parts else ""


def live(site: Site, request: Request) -> Response:
    """The words of the fleet's table, for the script that keeps it up to date; made once for all
    who ask within two seconds.
    """
    view = site.view()
    moment = int(time.monotonic() / LIVE_S)
    made_from = "live", view.number, moment
    return site.rendered.get(made_from, lambda: Answer.json(_cells(site, view))).to(request)


def _cells(site: Site, view: View) -> Facts:
    cells: dict[str, Any] = {}
    for facts in view.nodes:
        name = f"{facts['site']}/{facts['node']}"
        cells[f"{name} says"] = said_words(site.said((facts["site"], facts["node"])))
        cells[f"{name} accuracy"] = percent(best_accuracy(facts["accuracy"]))
        cells[f"{name} trouble"] = trouble(facts)
        cells[f"{name} heard"] = facts["heard_ms"]
    return {"cells": cells}


def said_words(said: Facts | None) -> str:
    """A prediction in a few words."""
    if said is None:
        return "–"
    sure = "" if said["confidence"] is None else f" {percent(said['confidence'])}"
    return f"{said['label']}{sure}"


def sparkline(points: Iterable[tuple[int, float | None]], hour: int) -> str:
    """The accuracy of the last hours as the points of a line, from 0 to 100 %.

    >>> sparkline([(100, 1.0), (101, None), (104, 0.5)], hour=104)
    '79.3,1.0 96.0,10.0'
    """
    first = hour - SPARK_HOURS + 1
    step = SPARK_WIDTH / (SPARK_HOURS - 1)
    return " ".join(
        f"{step * (at - first):.1f},{SPARK_HEIGHT - 1 - (SPARK_HEIGHT - 2) * accuracy:.1f}"
        for at, accuracy in points
        if accuracy is not None and at >= first
    )
