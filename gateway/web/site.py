"""What the pages share: the templates, who may have a page, and the fields of a form.

A page is a template filled from one `View` of the book. What needs the database runs in a worker
thread, so that a slow one keeps nobody else from being served.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from edge_opid.errors import OpidError
from gateway.cli.context import OperatorError
from gateway.cli.output import moment, percent
from gateway.registry import NodeKey
from gateway.web.access import Keys, Scope, Session
from gateway.web.answers import HTML, Rendered
from gateway.web.book import Book, Facts, View
from gateway.web.ear import Ear
from gateway.web.guard import FIELDS_MAX, Limits, refused
from gateway.web.settings import WebSettings

Handler = Callable[[Request], Awaitable[Response]]
HERE = Path(__file__).parent


def templates() -> Environment:
    """The templates; whatever a node or an operator wrote is escaped."""
    found = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters.update(percent=percent, moment=moment, iso=_iso, counted=_counted, code=_code)
    return found


def _code(text: str) -> Markup:
    """What stands between backticks is shown as code.

    >>> _code("run `check` <now>")
    Markup('run <code>check</code> &lt;now&gt;')
    """
    parts = text.split("`")
    shown = (f"<code>{escape(p)}</code>" if n % 2 else str(escape(p)) for n, p in enumerate(parts))
    return Markup("".join(shown))


def _iso(ms: int) -> str:
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return ""


def _counted(states: Iterable[tuple[str, str]]) -> str:
    counted = Counter(state for _, state in states)
    return ", ".join(f"{count} {state}" for state, count in sorted(counted.items()))


class Site:
    """What the handlers share."""

    def __init__(
        self,
        book: Book,
        ear: Ear | None,
        keys: Keys | None,
        settings: WebSettings,
        limits: Limits,
    ) -> None:
        self.book, self.ear, self.keys, self.settings, self.limits = (
            book, ear, keys, settings, limits
        )  # fmt: skip
        self.rendered = Rendered()
        self._followed = 0  # the view whose silent sensors the ear looks after
        self._templates = templates()

    def render(self, request: Request, name: str, **facts: Any) -> str:
        """A template, with what every page needs."""
        session = getattr(request.state, "session", None)
        shared = {"session": session, "is_open": self.settings.is_open, "here": request.url.path}
        return self._templates.get_template(name).render({**shared, **facts})

    def page(self, request: Request, name: str, code: int = 200, **facts: Any) -> Response:
        """A page that is made for this request alone."""
        return Response(self.render(request, name, **facts), code, media_type=HTML)

    def view(self) -> View:
        """The book of a moment ago; where a sensor is silent, the ear listens for another."""
        view = self.book.view()
        if self.ear is not None and view.number != self._followed:
            self._followed = view.number
            known = {key: set(view.fleet.sensors[key]) for key in view.silent}
            self.ear.listen_for_strangers(known)
        return view

    @property
    def hearing(self) -> str:
        """Why there are no live predictions; nothing where there are."""
        if self.ear is None:
            return "off: web.credentials names no account that may read the nodes' topics"
        return self.ear.trouble

    def said(self, key: NodeKey) -> Facts | None:
        """The last prediction of a node."""
        said = self.ear.said(key) if self.ear is not None else None
        return said.facts() if said is not None else None

    def key(self, request: Request, view: View) -> NodeKey:
        """The node in the path, if there is one."""
        key = request.path_params["site"], request.path_params["node"]
        if key not in view.fleet.nodes and view.fleet.group_of(key) is None:
            raise OperatorError(f"no node {'/'.join(key)} is known")
        return key


# -- what every handler is wrapped in --------------------------------------------------------------


def needs(scope: Scope, handler: Callable[[Site, Request], Response]) -> Callable[[Site], Handler]:
    """A handler for whoever has this scope, for the node in the path where there is one."""

    def of(site: Site) -> Handler:
        @functools.wraps(handler)
        async def answer(request: Request) -> Response:
            session: Session | None = request.state.session
            names = request.path_params.get("site"), request.path_params.get("node")
            node = "/".join(names) if all(names) else ""  # type: ignore[arg-type]
            machine = request.url.path.startswith("/api/")
            if session is None:
                return refused(401, "log in first") if machine else RedirectResponse("/login", 303)
            if not session.may(scope, node):
                if not machine and session.node and request.method == "GET":
                    return RedirectResponse(f"/label/{session.node}", 303)
                return refused(403, f"your session only allows {session.scope}")
            if request.method == "POST":
                request.state.form = await form_of(request)
            return await run_in_threadpool(_answered, site, handler, request, machine)

        return answer

    return of


def _answered(
    site: Site, handler: Callable[[Site, Request], Response], request: Request, machine: bool
) -> Response:
    try:
        return handler(site, request)
    except (OpidError, OSError) as error:
        code = 404 if isinstance(error, OperatorError) and request.method == "GET" else 400
        if isinstance(error, OSError):
            code = 503
        if machine:
            return JSONResponse({"error": str(error)}, code)
        facts = {"heading": "This cannot be done", "sentence": str(error), "bad": True}
        return site.page(request, "message.html", code, back="/", **facts)


async def form_of(request: Request) -> dict[str, list[str]]:
    """The fields of a form; a field may come several times."""
    text = (await request.body()).decode("utf-8", "replace")
    found: dict[str, list[str]] = {}
    for name, value in parse_qsl(text, keep_blank_values=True, max_num_fields=FIELDS_MAX):
        found.setdefault(name, []).append(value.strip())
    return found


def field(request: Request, name: str, default: str = "") -> str:
    """One field of the form."""
    values = request.state.form.get(name)
    return values[-1] if values else default
