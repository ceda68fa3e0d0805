"""How a session begins and ends: the token, a one-time link, and goodbye."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from gateway.web.access import COOKIE, SESSION_MS, AccessError, Caller, Scope, Session
from gateway.web.guard import now_ms
from gateway.web.site import Handler, Site, form_of

TOO_MANY = "Too many attempts from your address: wait a minute."


def _may_guess(site: Site, request: Request) -> bool:
    caller: Caller = request.state.caller
    return site.limits.guesses.take(caller.address, now_ms())


def login(site: Site) -> Handler:
    """The token, once, for a cookie."""

    async def answer(request: Request) -> Response:
        if site.keys is None:
            return RedirectResponse("/", 303)
        if request.method != "POST":
            return site.page(request, "login.html", sentence="")
        if not _may_guess(site, request):
            return site.page(request, "login.html", 429, sentence=TOO_MANY)
        form = await form_of(request)
        if not site.keys.is_token(form.get("token", [""])[-1]):
            return site.page(request, "login.html", 403, sentence="This is not the token.")
        return with_cookie(site, request, Scope.OPERATE, "", "/")

    return answer


def join(site: Site) -> Handler:
    """A one-time link for a cookie. Opening it uses nothing up: messengers look at links, too."""

    async def answer(request: Request) -> Response:
        if site.keys is None:
            return RedirectResponse("/", 303)
        if request.method != "POST":
            return site.page(request, "join.html", sentence="")
        if not _may_guess(site, request):
            return site.page(request, "join.html", 429, sentence=TOO_MANY)
        code = (await form_of(request)).get("code", [""])[-1]
        try:
            found = site.keys.opened_link(code, now_ms())
            await run_in_threadpool(_use_link, site, found)
        except AccessError as error:
            return site.page(request, "join.html", 403, sentence=str(error))
        back = f"/label/{found.node}" if found.node else "/label"
        return with_cookie(site, request, found.scope, found.node, back)

    return answer


def _use_link(site: Site, link: Session) -> None:
    first = site.book.ask(
        lambda context: context.store.use_link(link.nonce, link.ends_ms, now_ms())
    )
    if not first:
        raise AccessError("web-link", "this link has already been used: ask for another one")


def with_cookie(site: Site, request: Request, scope: Scope, node: str, to: str) -> Response:
    """A redirect that logs in."""
    assert site.keys is not None
    answer = RedirectResponse(to, 303)
    answer.set_cookie(
        COOKIE,
        site.keys.cookie(scope, node, now_ms()),
        max_age=SESSION_MS[scope] // 1000,
        httponly=True,
        samesite="strict",
        secure=request.state.caller.scheme == "https",
    )
    return answer


def logout(_: Site) -> Handler:
    """Forget the cookie."""

    async def answer(_: Request) -> Response:
        gone = RedirectResponse("/login", 303)
        gone.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return gone

    return answer
