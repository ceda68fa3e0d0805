"""`run`, `check`, `init`: the gateway itself, and what it needs before it can run."""

from __future__ import annotations

import os
import signal
from argparse import Namespace
from collections.abc import Iterator

from edge_opid import log
from edge_opid.errors import ConfigError, OpidError
from edge_opid.link.options import read_credentials, tls_context
from edge_opid.service.systemd import Systemd
from gateway.cli.output import Terminal
from gateway.config import GatewayConfig, load_config, load_signing_key
from gateway.setup.initialise import add_nodes, initialise, next_steps
from gateway.setup.plan import SetupPlan
from gateway.store import LeaderError


def run(given: Namespace, _screen: Terminal) -> int:
    """Serve until SIGTERM or SIGINT, then save, say goodbye, and end."""
    config = load_config(given.config, os.environ)
    from gateway.wiring import open_loop  # noqa: PLC0415 - scikit-learn takes a second to load

    log.set_up(config.log_level, os.environ)
    try:
        with open_loop(config, Systemd(os.environ)) as loop:
            for each in (signal.SIGTERM, signal.SIGINT):
                signal.signal(each, lambda *_: loop.stop())
            return loop.run()
    except (ConfigError, LeaderError):
        raise  # the operator's: a sentence for them
    except (OpidError, OSError) as error:
        log.error("cannot go on", why=error)
    except Exception:  # noqa: BLE001 - the log must tell what systemd is about to restart
        log.error("died of a bug", trace=True)
    return 1


# --- check ----------------------------------------------------------------------------------------


def check(given: Namespace, screen: Terminal) -> int:
    """Say what a gateway with this file would do; every mistake is one sentence."""
    config = load_config(given.config, os.environ)
    key = load_signing_key(config.key_file)
    try:
        if config.broker.credentials is not None:
            read_credentials(config.broker.credentials)
        if config.broker.tls is not None:
            tls_context(config.broker.tls)
    except OpidError as error:
        raise ConfigError(f"{given.config.name}: {error}") from error
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
    lock = "without TLS" if broker.tls is None else f"TLS, trusting {broker.tls.ca}"
    user = f"password from {broker.credentials}" if broker.credentials else "no password"
    yield f"broker {broker.host}:{broker.port} as client {broker.client_id}; {lock}; {user}"
    yield f"database {config.database_shown}"
    yield f"key {config.key_file}; nodes know it as {public_key}"


# --- init -----------------------------------------------------------------------------------------


def init(given: Namespace, screen: Terminal) -> int:
    """Make the folder of a new fleet, or add nodes to one; then say what is left to do."""
    plan = SetupPlan(
        site=given.site,
        group=given.group,
        classes=tuple(given.classes),
        nodes=tuple(given.nodes),
        sources=tuple(given.sources),
        broker_host=given.broker_host,
        broker_port=given.broker_port,
    )
    if given.add_nodes:
        written = add_nodes(given.folder, plan, os.environ)
    else:
        written = initialise(given.folder, plan)
    screen.lines([f"wrote {path}" for path in written] or ["nothing is missing, nothing written"])
    if written:
        screen.lines(["", "what is left to do:"])
        screen.lines(f"- {step}" for step in next_steps(given.folder, added=given.add_nodes))
    return 0
