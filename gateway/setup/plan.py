"""What a new folder of a fleet is asked to hold: one group, its nodes, and who may log in."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from edge_opid.config.schema import check_name
from edge_opid.errors import SettingError
from gateway.policy import Group

GATEWAY, OPERATOR = "gateway", "operator"  # a node's name has a dot: it can be neither
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

    def __post_init__(self) -> None:
        check_name(self.group, "plan.group")
        Group(self.group, self.site, self.classes, self.nodes).check("plan")
        if not self.nodes:
            raise SettingError("plan.nodes", "must be at least one, got none")
        for place, source in enumerate(self.sources):
            _check_source(source, self.sources[:place], f"plan.sources[{place}]")
        if self.broker_host is not None and not HOST.fullmatch(self.broker_host):
            complaint = f"must be a name or an address, got {self.broker_host!r}"
            raise SettingError("plan.broker_host", complaint)
        if self.broker_port is not None and not 0 < self.broker_port < 65_536:
            raise SettingError("plan.broker_port", f"must be 1 to 65535, got {self.broker_port}")

    @property
    def host(self) -> str:
        """Where the broker is."""
        return self.broker_host or "127.0.0.1"

    @property
    def port(self) -> int:
        """Where it listens."""
        return self.broker_port or 1883

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
        found = {
            name: PurePosixPath("keys") / f"{name}.credentials" for name in (GATEWAY, OPERATOR)
        }
        for node in self.nodes:
            found[self.user(node)] = self.folder(node) / "credentials"
            for source in (SENSORS, *self.sources):
                found[self.user(node, source)] = self.folder(node) / f"{source}.credentials"
        return found


def _check_source(source: str, before: tuple[str, ...], key: str) -> None:
    check_name(source, key)
    if source in (SENSORS, *before):
        raise SettingError(key, f"must differ from {SENSORS!r} and the others, got {source!r}")
