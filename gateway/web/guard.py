"""What every request passes before a page sees it, and what every answer carries.

The rules, in this order; what breaks one is answered in a sentence and changes nothing:

1. The Host header is one of our names: a stranger's name that was made to point here (DNS
   rebinding) would let that stranger's page read ours.
2. One address may not ask without end.
3. Whatever changes something has an Origin, equal to scheme and Host: no other page's form.
4. Addresses and forms are small, and a form is whole before anybody looks at it.
5. A session comes from the cookie; without one only the login, the health and the static files
   are there.

Every answer forbids the browser to load anything from elsewhere, or to be shown within a frame.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from starlette.datastructures import MutableHeaders
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.web.access import ANYBODY, COOKIE, Caller, Keys, RateLimit, Session, caller_of
from gateway.web.settings import WebSettings

BODY_BYTES_MAX = 65_536  # a queue of instances with their labels is a few kilobytes
FIELDS_MAX = 400
URL_BYTES_MAX = (
    2_048  # 64 labels that were just given are 700; Python reads numbers of 4,300 digits
)
SAFE = ("GET", "HEAD")
HEADERS = {
    "content-security-policy": (
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
        "object-src 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not `no-referrer`: browsers then say `Origin: null` for our own forms.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


def now_ms() -> int:
    """The time by which sessions end and requests are counted."""
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class Limits:
    """How much one address may ask for: pages with all their parts, what changes, and guesses."""

    every: RateLimit
    changing: RateLimit
    guesses: RateLimit

    @classmethod
    def usual(cls) -> Limits:
        """Twenty phones behind one router stay far below; a loop does not."""
        return cls(
            every=RateLimit(per_s=50.0, burst=400),
            changing=RateLimit(per_s=5.0, burst=60),
            guesses=RateLimit(per_s=0.2, burst=10),
        )


class Guard:
    """The outermost part of the application."""

    def __init__(
        self,
        app: ASGIApp,
        settings: WebSettings,
        keys: Keys | None,
        limits: Limits,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self._app, self._settings, self._keys = app, settings, keys
        self._limits, self._clock = limits, clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        headers = _headers(scope)
        peer = scope["client"][0] if scope.get("client") else ""
        proxies = self._settings.trusted_proxies
        caller = caller_of(peer, scope["scheme"], headers, proxies)
        answer = self._with_headers(send)
        refusal, body = self._refusal(scope, caller, headers), b""
        if refusal is None and scope["method"] not in SAFE:
            whole = await _body(receive)
            if whole is None:
                return  # nobody is there to be answered
            body, refusal = whole, _form_refusal(whole)
        if refusal is not None:
            await refusal(scope, receive, answer)
            return
        state = scope.setdefault("state", {})
        state["caller"], state["session"] = caller, self._session(headers)
        await self._app(scope, _once(body, receive), answer)

    def _refusal(self, scope: Scope, caller: Caller, headers: dict[str, str]) -> Response | None:
        if caller.name not in self._settings.names:
            return refused(421, f"{caller.name!r} is not one of this server's names: see web.hosts")
        now = self._clock()
        if not self._limits.every.take(caller.address, now):
            return refused(429, "too many requests from your address: wait a moment")
        if len(scope["path"]) + len(scope["query_string"]) > URL_BYTES_MAX:
            return refused(414, f"an address may have at most {URL_BYTES_MAX} bytes")
        return None if scope["method"] in SAFE else self._change_refusal(caller, headers, now)

    def _change_refusal(self, caller: Caller, headers: dict[str, str], now: int) -> Response | None:
        if headers.get("origin") != caller.origin:
            return refused(403, "this form was not sent by a page of this server")
        if not self._limits.changing.take(caller.address, now):
            return refused(429, "too many changes from your address: wait a moment")
        return None

    def _session(self, headers: dict[str, str]) -> Session | None:
        if self._settings.is_open:
            return ANYBODY
        assert self._keys is not None  # the settings ask for a token
        return self._keys.session(_cookie(headers.get("cookie", "")), self._clock())

    def _with_headers(self, send: Send) -> Send:
        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        return answer


def refused(code: int, sentence: str) -> Response:
    """A refusal in a sentence."""
    return PlainTextResponse(f"{sentence}\n", status_code=code)


def _headers(scope: Scope) -> dict[str, str]:
    """The headers; of one that came twice, the last counts, and Host twice is no name of ours."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        key = name.decode("latin-1")
        found[key] = "" if key == "host" and key in found else value.decode("latin-1")
    return found


def _cookie(header: str) -> str:
    """Our cookie. Browsers send it beside those of every other port of this host, whose authors
    write what they like: Python's own parser gives up at the first that it does not understand.

    >>> _cookie('prefs={"a": 1}; opid_session=x.y')
    'x.y'
    """
    named = (each.strip().partition("=") for each in header.split(";"))
    return next((value for name, _, value in named if name == COOKIE), "")


async def _body(receive: Receive) -> bytes | None:
    """The whole body, or a little more of it than is allowed; None where it was cut off."""
    taken, more = b"", True
    while more and len(taken) <= BODY_BYTES_MAX:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        taken += message.get("body", b"")
        more = message.get("more_body", False)
    return taken


def _form_refusal(body: bytes) -> Response | None:
    if len(body) > BODY_BYTES_MAX:
        return refused(413, f"a form may have at most {BODY_BYTES_MAX} bytes")
    if body.count(b"&") >= FIELDS_MAX:
        return refused(400, f"a form may have at most {FIELDS_MAX} fields")
    return None


def _once(body: bytes, receive: Receive) -> Receive:
    """The body, and then whatever else comes."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def take() -> Message:
        return first.pop() if first else await receive()

    return take
