"""Changes: the last ones, and one with its fits and its members."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from gateway.cli.changes import change_facts, find_change, full_facts
from gateway.web.answers import Answer
from gateway.web.book import Facts
from gateway.web.site import Site

CHANGES_SHOWN = 100


def last_changes(site: Site) -> list[Facts]:
    """What `change list --json` says."""
    fleet = site.view().fleet
    return site.book.ask(
        lambda context: [
            change_facts(context, fleet, each) for each in context.store.changes(CHANGES_SHOWN)
        ]
    )


def one_change(site: Site, request: Request) -> Facts:
    """What `change show --json` says."""
    number = request.path_params["number"]
    return site.book.ask(lambda context: full_facts(context, find_change(context, number)))


def changes_page(site: Site, request: Request) -> Response:
    """The last changes."""
    return site.page(request, "changes.html", changes=last_changes(site))


def change_page(site: Site, request: Request) -> Response:
    """What `change show` says; the script fetches it again while the change is open."""
    return site.page(request, "change.html", change=one_change(site, request))


def api_changes(site: Site, request: Request) -> Response:
    """`change list --json`."""
    return Answer.json(last_changes(site)).to(request)


def api_change(site: Site, request: Request) -> Response:
    """`change show --json`."""
    return Answer.json(one_change(site, request)).to(request)
