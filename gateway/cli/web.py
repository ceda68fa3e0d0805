"""`web`, `web-link`: the pages as a process of their own, and the links that let a phone in."""

from __future__ import annotations

import os
from argparse import Namespace
from dataclasses import replace

from edge_opid import log
from edge_opid.errors import missing_extra
from gateway.cli.context import OperatorError, find_node, open_context
from gateway.cli.output import Terminal
from gateway.cli.sensors import now_ms
from gateway.config import GatewayConfig, load_config
from gateway.secret_files import read_secret
from gateway.web.access import LINK_MS, Keys, Scope


def check_web_extra() -> None:
    """Refuse in a sentence where the libraries of the pages are not installed."""
    try:
        import jinja2  # noqa: F401, PLC0415 - whoever has no pages does not load them
        import starlette  # noqa: F401, PLC0415
        import uvicorn  # noqa: F401, PLC0415
    except ModuleNotFoundError as error:
        raise OperatorError(missing_extra(error, "web")) from error


def web(given: Namespace, _screen: Terminal) -> int:
    """Serve the pages until SIGTERM or SIGINT."""
    config = load_config(given.config, os.environ)
    check_web_extra()
    from gateway.web.server import serve  # noqa: PLC0415 - of the extra `web`

    log.set_up(config.log_level, os.environ)
    if given.port is not None:
        config = replace(config, web=replace(config.web, port=given.port))
    with open_context(given.config):
        pass  # there is a database, and it can be read
    return serve(config, until_eof=given.until_eof)


def web_link(given: Namespace, screen: Terminal) -> int:
    """Print a link that works once, or Prometheus' word."""
    config = load_config(given.config, os.environ)
    keys = _keys(config)
    if given.metrics:
        screen.lines([keys.metrics_word])
        return 0
    node = ""
    if given.node is not None:
        with open_context(given.config) as context:
            node = "/".join(find_node(context.fleet(), given.node))
    scope = Scope.OPERATE if given.operate else Scope.LABEL
    name = next(iter(config.web.hosts), config.web.host)
    code = keys.link(scope, node, now_ms())
    screen.lines([f"{given.scheme}://{name}:{config.web.port}/join#{code}"])
    screen.remark(f"it works once, within {LINK_MS // 60_000} minutes, to {scope} {node or 'all'}")
    return 0


def _keys(config: GatewayConfig) -> Keys:
    if config.web.token is None:
        raise OperatorError("web.token is missing: links are made from the secret in that file")
    return Keys(read_secret(config.web.token, "web token"))
