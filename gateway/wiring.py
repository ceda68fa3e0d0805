"""The real parts of a gateway, put together: its database, its broker, its key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from edge_opid.link.mqtt import MqttLink
from edge_opid.link.options import MqttOptions
from edge_opid.service.systemd import Systemd
from gateway.clock import GatewayClock
from gateway.config import GatewayConfig, load_signing_key
from gateway.decisions.gateway import Gateway
from gateway.fitting.elsewhere import fitter_for
from gateway.fitting.shared import SharedFitter
from gateway.loop import GatewayLoop
from gateway.policy import Group
from gateway.recall import recalled
from gateway.registry.history import HOUR_MS
from gateway.sites.lease import Lease
from gateway.sites.site_loop import SiteLoop
from gateway.sites.supervisor import Supervisor
from gateway.store import FleetStore
from gateway.store.database import Database
from gateway.store.site_store import SiteStore
from gateway.store.sites import MemberSession, Tenure

OUTBOX_MESSAGES_MAX = 65_536  # a wave to every node of a large fleet
OUTBOX_BYTES_MAX = 256 * 2**20  # … with weights; a gateway is no Pi Zero
INBOX_MESSAGES_MAX = 16_384


@contextmanager
def open_loop(config: GatewayConfig, systemd: Systemd) -> Iterator[GatewayLoop]:
    """A gateway that has its database alone, on the real broker, ready to `run`."""
    with FleetStore.open(config.database) as store:
        store.claim()
        clock = GatewayClock()
        gateway = _resumed(config, config.groups, store, clock)
        link = MqttLink(_roomy(config.broker))
        parts = gateway, link, store, clock, fitter_for(config.fits), systemd
        yield GatewayLoop(*parts, status_file=config.status_file)


@contextmanager
def open_supervisor(config: GatewayConfig, systemd: Systemd) -> Iterator[Supervisor]:
    """A gateway that shares the sites of its database with others, ready to `run`."""
    key = load_signing_key(config.key_file).verify_key.encode().hex()
    for site in config.sites:
        config.broker_of(site).login()  # a bad file is an error now, not a site that fails later
    FleetStore.open(config.database).close()  # brings the schema to the newest version
    database, lease = Database(config.database), Lease(config.lease_s)
    session = MemberSession(database, key, config.lease_s, config.sites)
    clock, fitter = GatewayClock(), SharedFitter(fitter_for(config.fits))
    try:
        yield Supervisor(
            session,
            lease,
            partial(open_site, config, fitter),
            systemd,
            status_file=config.status_file,
            now_ms=clock.now_ms,
        )
    finally:
        fitter.stop()
        session.close()
        database.close()


@contextmanager
def open_site(
    config: GatewayConfig,
    fitter: SharedFitter,
    tenure: Tenure,
    guard: Callable[[], None],
    allowed: Callable[[], bool],
) -> Iterator[SiteLoop]:
    """The gateway of one site that this process holds."""
    groups = [group for group in config.groups if group.site == tenure.site]
    with SiteStore(config.database, tenure, [group.id for group in groups]) as store:
        clock = GatewayClock()
        gateway = _resumed(config, groups, store, clock)
        link = MqttLink(_roomy(config.broker_of(tenure.site)), allowed=allowed)
        parts = gateway, link, store, clock, fitter.for_site(), Systemd({})
        yield SiteLoop(*parts, tenure=tenure, guard=guard)


def _resumed(
    config: GatewayConfig, groups: Iterable[Group], store: FleetStore, clock: GatewayClock
) -> Gateway:
    """The decisions, where the store's last gateway left them."""
    store.forget_closed()
    stored, pushed = recalled(store)
    stored = replace(stored, hours=store.minutes_since(clock.now_ms() // HOUR_MS))
    return Gateway(config.policy, groups, load_signing_key(config.key_file), stored, pushed)


def _roomy(options: MqttOptions) -> MqttOptions:
    return replace(
        options,
        outbox_messages_max=OUTBOX_MESSAGES_MAX,
        outbox_bytes_max=OUTBOX_BYTES_MAX,
        inbox_messages_max=INBOX_MESSAGES_MAX,
    )
