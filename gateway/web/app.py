"""The application: every route, and who may have it."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike, stat_result

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope as AsgiScope

from gateway.web import api, changes, discover, fleet, label, login, members, node_page, operate
from gateway.web.access import Scope
from gateway.web.guard import Guard
from gateway.web.site import HERE, Site, needs

LABEL, OPERATE = Scope.LABEL, Scope.OPERATE
Page = Callable[[Site, Request], Response]
NODE = "{site}/{node}"
READ: dict[str, tuple[Scope, Page]] = {
    "/": (OPERATE, fleet.fleet_page),
    f"/node/{NODE}": (OPERATE, node_page.node_page),
    f"/node/{NODE}/lanes": (OPERATE, node_page.lanes_part),
    "/changes": (OPERATE, changes.changes_page),
    "/change/{number:int}": (OPERATE, changes.change_page),
    "/members": (OPERATE, members.members_page),
    "/label": (LABEL, label.choose_page),
    f"/label/{NODE}": (LABEL, label.label_page),
    f"/operate/{NODE}": (OPERATE, operate.operate_page),
    f"/discover/{NODE}": (OPERATE, discover.discover_page),
    "/proposals": (OPERATE, operate.proposals_page),
    "/command/{number:int}": (OPERATE, operate.command_page),
    "/api/live.json": (OPERATE, fleet.live),
    "/api/status.json": (OPERATE, api.api_status),
    "/api/members.json": (OPERATE, members.api_members),
    "/api/nodes.json": (OPERATE, api.api_nodes),
    "/api/sensors.json": (OPERATE, api.api_sensors),
    "/api/changes.json": (OPERATE, changes.api_changes),
    "/api/change/{number:int}.json": (OPERATE, changes.api_change),
    f"/api/node/{NODE}.json": (OPERATE, api.api_node),
    f"/api/node/{NODE}/history.json": (OPERATE, node_page.history),
}
CHANGE: dict[str, tuple[Scope, Page]] = {
    f"/label/{NODE}": (LABEL, label.give),
    f"/label/{NODE}/undo": (LABEL, label.undo),
    f"/operate/{NODE}/rehearse": (OPERATE, operate.rehearse_page),
    f"/operate/{NODE}/confirm": (OPERATE, operate.confirm),
    f"/node/{NODE}/invite": (OPERATE, operate.invite),
    f"/discover/{NODE}": (OPERATE, discover.discover),
}


class Files(StaticFiles):
    """What never changes while we run: a browser asks whether it has the newest, and keeps it."""

    def file_response(
        self,
        full_path: str | PathLike[str],
        stat_result: stat_result,
        scope: AsgiScope,
        status_code: int = 200,
    ) -> Response:
        """As usual, and the browser may keep it."""
        answer = super().file_response(full_path, stat_result, scope, status_code)
        answer.headers["cache-control"] = "no-cache"
        return answer


def application(site: Site) -> Guard:
    """All of it, behind its guard."""
    routes: list[Route | Mount] = [
        Route("/healthz", api.healthz(site)),
        Route("/metrics", api.metrics(site)),
        Route("/login", login.login(site), methods=["GET", "POST"]),
        Route("/join", login.join(site), methods=["GET", "POST"]),
        Route("/logout", login.logout(site), methods=["POST"]),
        Mount("/static", Files(directory=HERE / "static")),
    ]
    for method, table in (("GET", READ), ("POST", CHANGE)):
        routes += [
            Route(path, needs(scope, page)(site), methods=[method])
            for path, (scope, page) in table.items()
        ]
    return Guard(Starlette(routes=routes), site.settings, site.keys, site.limits)
