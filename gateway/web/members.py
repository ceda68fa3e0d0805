"""The gateways that share this database, and which sites each of them serves."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from gateway.cli.members import heartbeat_words, member_facts
from gateway.web.answers import Answer
from gateway.web.site import Site


def members_page(site: Site, request: Request) -> Response:
    """What `members` says; the script fetches it again, so that a hand-over is seen."""
    facts = site.book.ask(member_facts)
    beats = [heartbeat_words(each) for each in facts["members"]]
    return site.page(request, "members.html", facts=facts, beats=beats)


def api_members(site: Site, request: Request) -> Response:
    """`members --json`."""
    return Answer.json(site.book.ask(member_facts)).to(request)
