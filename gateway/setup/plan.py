"""What a new folder of a fleet is asked to hold: one group, its nodes, and who may log in."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from edge_opid.config.node import check_foreign_filter
from edge_opid.config.schema import check_name
from edge_opid.errors import SettingError, shown
from gateway.policy import Group

GATEWAY, OPERATOR, WEB = "gateway", "operator", "web"  # a node's name has a dot: it is none
HOMEASSISTANT = "homeassistant"
BRIDGE = "bridge"
SENSORS = "sensors"  # the name that all sensors of a node share, unless they have their own
HOST = re.compile(r"[A-Za-z0-9._:-]{1,253}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupPlan:
    """One group of nodes, and where their broker is.

    `sources` are sensor scripts that run as processes of their own beside the first one: the broker
    lets a name in once, so two processes with one name would push each other out for ever.

    >>> plan = SetupPlan(site="street", group="air", classes=("fresh", "stale"), nodes=("north",))
    >>> for user, file in plan.accounts().items():
    ...     print(user, file)
    gateway keys/gateway.credentials
    operator keys/operator.credentials
    web keys/web.credentials
    street.north nodes/street-north/credentials
    street.north.sensors nodes/street-north/sensors.credentials
    """

    site: str
    group: str
    classes: tuple[str, ...]
    nodes: tuple[str, ...]
    sources: tuple[str, ...] = ()
    broker_host: str | None = None  # None: 127.0.0.1, or what the folder says already
    broker_port: int | None = None  # None: 1883, or what the folder says already
    foreign: tuple[str, ...] = ()  # topics of other devices that the nodes may hear
    homeassistant: bool = False  # nodes announce themselves to Home Assistant
    database: str = "sqlite:///gateway.sqlite"
    status_file: str | None = None
    site_broker: str | None = None  # HOST or HOST:PORT of a broker for this site's nodes alone

    def __post_init__(self) -> None:
        check_name(self.group, "plan.group")
        Group(self.group, self.site, self.classes, self.nodes).check("plan")
        if not self.nodes:
            raise SettingError("plan.nodes", "must have at least one")
        for place, source in enumerate(self.sources):
            _check_source(source, self.sources[:place], f"plan.sources[{place}]")
        for place, foreign in enumerate(self.foreign):
            _check_foreign(foreign, f"plan.foreign[{place}]")
        if self.broker_host is not None and not HOST.fullmatch(self.broker_host):
            complaint = f"must be a name or an address, got {self.broker_host!r}"
            raise SettingError("plan.broker_host", complaint)
        if self.broker_port is not None and not 0 < self.broker_port < 65_536:
            raise SettingError("plan.broker_port", f"must be 1 to 65535, got {self.broker_port}")
        if self.site_broker is not None:
            _split(self.site_broker)
            if self.homeassistant:
                complaint = (
                    "must not be given together with homeassistant: its rules are for one broker"
                )
                raise SettingError("plan.site_broker", complaint)

    @property
    def host(self) -> str:
        """Where the broker is."""
        return self.broker_host or "127.0.0.1"

    @property
    def port(self) -> int:
        """Where it listens."""
        return self.broker_port or 1883

    @property
    def node_host(self) -> str:
        """Where the nodes' broker is: that of their site, or the only one."""
        return self.host if self.site_broker is None else _split(self.site_broker)[0]

    @property
    def node_port(self) -> int:
        """Where that one listens."""
        return self.port if self.site_broker is None else _split(self.site_broker)[1]

    @property
    def is_shared(self) -> bool:
        """Whether several gateways may share the sites, so that each site has an account."""
        return self.database.startswith("postgresql")

    def gateway_account(self, site: str) -> str:
        """The name by which the gateway of this site logs in. It has no dot, so no node has it."""
        return f"{GATEWAY}-{site}" if self.is_shared else GATEWAY

    @property
    def bridge_account(self) -> str:
        """The name by which the site's broker logs in at the central one."""
        return f"{BRIDGE}-{self.site}"

    @property
    def site_folder(self) -> PurePosixPath:
        """What is carried to the machine of the site's own broker."""
        return PurePosixPath("sites") / self.site

    def user(self, node: str, source: str = "") -> str:
        """The name of a node, or of one of its sources, at the broker.

        Ids have no dot, so no two nodes of any two sites share a name.
        """
        return f"{self.site}.{node}.{source}" if source else f"{self.site}.{node}"

    def folder(self, node: str) -> PurePosixPath:
        """What is carried to the node."""
        return PurePosixPath("nodes") / f"{self.site}-{node}"

    def accounts(self) -> dict[str, PurePosixPath]:
        """Who may log in, and the file with name and password."""
        names = [GATEWAY, OPERATOR, WEB, *([HOMEASSISTANT] if self.homeassistant else [])]
        if self.is_shared:
            names.append(self.gateway_account(self.site))
        found = {name: PurePosixPath("keys") / f"{name}.credentials" for name in names}
        if self.site_broker is None:
            return found | self.node_accounts()
        return found | {self.bridge_account: self.site_folder / "bridge.credentials"}

    def node_accounts(self) -> dict[str, PurePosixPath]:
        """The nodes and their sensors, who log in at their site's broker where it has one."""
        found = {}
        for node in self.nodes:
            found[self.user(node)] = self.folder(node) / "credentials"
            for source in (SENSORS, *self.sources):
                found[self.user(node, source)] = self.folder(node) / f"{source}.credentials"
        return found


def _split(address: str) -> tuple[str, int]:
    """Host and port of a site's broker."""
    host, _, port = address.rpartition(":") if ":" in address else (address, "", "1883")
    if not HOST.fullmatch(host) or not port.isdecimal() or not 0 < int(port) < 65_536:
        complaint = f"must be HOST or HOST:PORT, got {shown(address)}"
        raise SettingError("plan.site_broker", complaint)
    return host, int(port)


def _check_source(source: str, before: tuple[str, ...], key: str) -> None:
    check_name(source, key)
    if source in (SENSORS, *before):
        raise SettingError(key, f"must differ from {SENSORS!r} and the others, got {source!r}")


def _check_foreign(foreign: str, key: str) -> None:
    """A filter that reaches neither our topics nor, by a line break, other rules."""
    check_foreign_filter(foreign, key)
    if not foreign.isprintable():
        raise SettingError(key, f"must be one printable line, got {shown(foreign)}")
