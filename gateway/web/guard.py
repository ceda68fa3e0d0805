"""What every request passes before a page sees it, and what every answer carries.

The rules, in this order; what breaks one is answered in a sentence and changes nothing:

1. The Host header is one of our names: a stranger's name that was made to point here (DNS
   rebinding) would let that stranger's page read ours.
2. One address may not ask without end.
3. Whatever changes something has an Origin, equal to scheme and Host: no other page's form.
4. A body is small.
5. A session comes from the cookie; without one only the login, the health and the static files
   are there.

Every answer forbids the browser to load anything from elsewhere, or to be shown within a frame.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.web.access import ANYBODY, COOKIE, Caller, Keys, RateLimit, Session, caller_of
from gateway.web.settings import WebSettings

BODY_BYTES_MAX = 65_536  # a queue of instances with their labels is a few kilobytes
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
        state = scope.setdefault("state", {})
        state["caller"], state["session"] = caller, self._session(headers)
        refusal = self._refusal(scope["method"], caller, headers)
        answer = self._with_headers(send)
        if refusal is not None:
            await refusal(scope, receive, answer)
            return
        await self._app(scope, _bounded(receive), answer)

    def _refusal(self, method: str, caller: Caller, headers: dict[str, str]) -> Response | None:
        if caller.name not in self._settings.names:
            return refused(421, f"{caller.name!r} is no name of this server: see web.hosts")
        now = self._clock()
        if not self._limits.every.take(caller.address, now):
            return refused(429, "too many requests from your address: wait a moment")
        return None if method in SAFE else self._change_refusal(caller, headers, now)

    def _change_refusal(self, caller: Caller, headers: dict[str, str], now: int) -> Response | None:
        if headers.get("origin") != caller.origin:
            return refused(403, "this form was not sent by a page of this server")
        if not self._limits.changing.take(caller.address, now):
            return refused(429, "too many changes from your address: wait a moment")
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length) > BODY_BYTES_MAX:
            return refused(413, f"a form may have {BODY_BYTES_MAX} bytes")
        return None

    def _session(self, headers: dict[str, str]) -> Session | None:
        if self._settings.is_open:
            return ANYBODY
        try:
            found = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return None
        assert self._keys is not None  # the settings ask for a token
        return self._keys.session(found.value, self._clock()) if found is not None else None

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


def _bounded(receive: Receive) -> Receive:
    """A body that says nothing of its length ends where it becomes too long."""
    taken = 0

    async def take() -> Message:
        nonlocal taken
        message: dict[str, Any] = dict(await receive())
        taken += len(message.get("body", b""))
        if taken > BODY_BYTES_MAX:
            return {"type": "http.disconnect"}
        return message

    return take
