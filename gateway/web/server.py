"""The process of the pages: its parts put together, and served until told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from edge_opid import log
from edge_opid.link.background import BackgroundLink
from gateway.config import GatewayConfig
from gateway.secret_files import read_secret
from gateway.store import FleetStore
from gateway.web.access import Keys
from gateway.web.app import application
from gateway.web.book import Book
from gateway.web.ear import Ear
from gateway.web.guard import Limits
from gateway.web.site import Site

CLIENT = "opid-gateway-web"
CONNECTIONS_MAX = 128
HEADER_BYTES_MAX = 16_384
KEEP_ALIVE_S = 10
REQUEST_S = 30.0
"""For a request and its answer: a locked database takes five seconds, a phone with one bar ten."""
STOP_S = 3
PAYLOAD_BYTES_MAX = 8 * 2**20  # zigbee2mqtt describes all devices of a large house in one message


def load_keys(config: GatewayConfig) -> Keys | None:
    """What follows from the token; none where the pages are open to this machine alone."""
    if config.web.is_open or config.web.token is None:
        return None
    return Keys(read_secret(config.web.token, "web token"))


@contextlib.contextmanager
def open_site(config: GatewayConfig) -> Iterator[Site]:
    """The pages on the real database and, where they may hear it, the real broker."""
    keys = load_keys(config)
    with FleetStore.open(config.database) as store:
        ear = open_ear(config)
        try:
            yield Site(Book(config, store), ear, keys, config.web, Limits.usual())
        finally:
            if ear is not None:
                ear.stop()


def open_ear(config: GatewayConfig) -> Ear | None:
    """A connection of its own: a broker that wants names gives each name one connection."""
    if config.broker.credentials is not None and config.web.credentials is None:
        return None
    options = replace(
        config.broker,
        client_id=f"{CLIENT}-{secrets.token_hex(4)}",  # another gateway's pages may be there, too
        credentials=config.web.credentials,
        persistent=False,
        inbox_messages_max=4_096,
        payload_bytes_max=PAYLOAD_BYTES_MAX,
        inbox_bytes_max=4 * PAYLOAD_BYTES_MAX,
    )
    ear = Ear(BackgroundLink(options), (group.site for group in config.groups))
    ear.start()
    return ear


class Prompt(H11Protocol):
    """A connection that ends if it has not had its next answer in `REQUEST_S`.

    uvicorn waits for ever for the rest of a request, and for whoever does not read its answer. With
    `CONNECTIONS_MAX` of them, which cost a stranger nothing, nobody else would be served.
    """

    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait."""
        super().connection_made(transport)
        self._wait_anew()

    def on_response_complete(self) -> None:
        """It was quick enough; begin anew."""
        self._wait_anew()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """There is nobody to wait for."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait_anew(self) -> None:
        self._stop_waiting()
        self._patience = self.loop.call_later(REQUEST_S, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()


def serve(config: GatewayConfig, *, until_eof: bool = False) -> int:
    """Serve until SIGTERM or SIGINT; or, as a gateway's child, until the gateway is gone."""
    with open_site(config) as site:
        server = uvicorn.Server(
            uvicorn.Config(
                application(site),
                host=config.web.host,
                port=config.web.port,
                http=Prompt,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,  # gateway.web.access decides whom to believe
                limit_concurrency=CONNECTIONS_MAX,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=STOP_S,
                h11_max_incomplete_event_size=HEADER_BYTES_MAX,
            )
        )
        if until_eof:
            threading.Thread(target=_watch, args=(server,), daemon=True).start()
        where = f"http://{config.web.host}:{config.web.port}"
        log.info("pages", at=where, open=config.web.is_open)
        server.run()
        return 0 if server.started else 1


def _watch(server: uvicorn.Server) -> None:
    """Our parent holds the other end of this pipe; whatever ends it ends us."""
    sys.stdin.buffer.read()
    server.should_exit = True
