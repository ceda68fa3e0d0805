"""Documents for machines: the keys of `--json`, the health of the pages, and Prometheus' text."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from edge_opid.errors import OpidError
from gateway.web.access import Scope, Session
from gateway.web.answers import Answer
from gateway.web.guard import refused
from gateway.web.metrics import CONTENT_TYPE, metrics_of
from gateway.web.site import Handler, Site


def api_status(site: Site, request: Request) -> Response:
    """`status --json`."""
    return Answer.json(site.view().status).to(request)


def api_nodes(site: Site, request: Request) -> Response:
    """`node list --json`, and what each node says."""
    view = site.view()
    found = [{**f, "said": site.said((f["site"], f["node"]))} for f in view.nodes]
    return Answer.json(found).to(request)


def api_node(site: Site, request: Request) -> Response:
    """`node show --json`, and what the node says."""
    view = site.view()
    key = site.key(request, view)
    return Answer.json({**view.node(key), "said": site.said(key)}).to(request)


def api_sensors(site: Site, request: Request) -> Response:
    """`sensor list --json`."""
    view = site.view()
    return Answer.json([each for key in view.keys for each in view.sensors(key)]).to(request)


def healthz(site: Site) -> Handler:
    """Whether the pages can read the book; says nothing of the fleet, so it needs no session."""

    async def answer(_: Request) -> Response:
        try:
            await run_in_threadpool(site.view)
        except (OpidError, OSError) as error:
            return refused(503, f"the database does not answer: {error}")
        return Response("ok\n", media_type="text/plain")

    return answer


def metrics(site: Site) -> Handler:
    """For Prometheus, which has no cookie: its word opens this page and no other."""

    async def answer(request: Request) -> Response:
        session: Session | None = request.state.session
        word = request.headers.get("authorization", "").removeprefix("Bearer ")
        known = site.keys is not None and site.keys.is_metrics_word(word)
        if not known and (session is None or not session.may(Scope.OPERATE)):
            return refused(
                401, "send the token that opid-gateway web-link --metrics prints as bearer token"
            )
        try:
            text = await run_in_threadpool(lambda: metrics_of(site.view()))
        except (OpidError, OSError) as error:
            return refused(503, f"the database does not answer: {error}")
        return Response(text, headers={"content-type": CONTENT_TYPE})

    return answer
