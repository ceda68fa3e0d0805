"""`run`, `check`: the gateway itself, and what it would do."""

from __future__ import annotations

import os
import signal
from argparse import Namespace
from collections.abc import Iterator
from contextlib import nullcontext

from edge_opid import log
from edge_opid.errors import ConfigError, OpidError, sentence_of
from edge_opid.link.options import read_credentials
from edge_opid.link.tls import tls_context
from edge_opid.service.systemd import Systemd
from gateway.cli.output import Terminal
from gateway.cli.web import check_web_extra
from gateway.config import GatewayConfig, load_config, load_signing_key
from gateway.fitting.settings import Where
from gateway.store import LeaderError
from gateway.web_child import WebChild


def run(given: Namespace, _screen: Terminal) -> int:
    """Serve until SIGTERM or SIGINT, then save, say goodbye, and end."""
    config = load_config(given.config, os.environ)
    from gateway.wiring import (  # noqa: PLC0415 - scikit-learn takes a second to load
        open_loop,
        open_supervisor,
    )

    log.set_up(config.log_level, os.environ)
    if given.web:
        check_web_extra()
    pages = WebChild(given.config) if given.web else nullcontext()
    try:
        opened = open_supervisor if config.is_shared else open_loop
        with opened(config, Systemd(os.environ)) as loop, pages:
            for each in (signal.SIGTERM, signal.SIGINT):
                signal.signal(each, lambda *_: loop.stop())
            return loop.run()
    except (ConfigError, LeaderError):
        raise  # the operator's: a sentence for them
    except (OpidError, OSError) as error:
        log.error("cannot go on", why=sentence_of(error))
    except Exception:  # noqa: BLE001 - the log must tell what systemd is about to restart
        log.error("died of a bug", trace=True)
    return 1


# --- check ----------------------------------------------------------------------------------------


def check(given: Namespace, screen: Terminal) -> int:
    """Say what a gateway with this file would do; every mistake is one sentence."""
    config = load_config(given.config, os.environ)
    key = load_signing_key(config.key_file)
    try:
        for site in config.sites if config.is_shared else ():
            config.broker_of(site).login()
        if not config.is_shared and config.broker.credentials is not None:
            read_credentials(config.broker.credentials)
        if config.broker.tls is not None:
            tls_context(config.broker.tls)
    except OpidError as error:
        raise ConfigError(f"{given.config.name}: {error}") from error
    if config.fits.where is Where.DASK:
        from gateway.fitting.elsewhere import check_dask_extra  # noqa: PLC0415 - and scikit-learn

        check_dask_extra()
    screen.lines(describe(config, key.verify_key.encode().hex()))
    return 0


def describe(config: GatewayConfig, public_key: str) -> Iterator[str]:
    """What a gateway with this configuration would do, line by line."""
    policy, broker = config.policy, config.broker
    for group in config.groups:
        yield f"group {group.id} of site {group.site}: {', '.join(group.nodes) or 'no nodes'}"
        yield f"  classes {', '.join(group.classes)}"
    yield f"a sensor silent for {policy.silence_s:g} s is retired"
    sizes = ", ".join(map(str, policy.batch_sizes()))
    yield f"a change is fitted on {sizes} labelled instances, for {policy.gather_s / 86400:g} days"
    yield f"weights travel as {policy.weights}; λ {policy.lam:g}, ρ {policy.rho:g}"
    yield f"fits run {config.fits}"
    lock = "without TLS" if broker.tls is None else f"TLS, trusting {broker.tls.ca}"
    user = f"password from {broker.credentials}" if broker.credentials else "no password"
    client = f"{broker.client_id}-SITE" if config.is_shared else broker.client_id
    yield f"broker {broker.host}:{broker.port} as client {client}; {lock}; {user}"
    yield f"database {config.database_shown}"
    if config.is_shared:
        yield f"sites are shared with other gateways of it, by leases of {config.lease_s:g} s"
    web, guarded = config.web, "to this machine alone" if config.web.is_open else "for a token"
    yield f"pages, where they run, at http://{web.host}:{web.port}, {guarded}"
    yield f"key {config.key_file}; nodes know it as {public_key}"
