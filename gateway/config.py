"""A TOML file, and perhaps a few environment variables, become a checked `GatewayConfig`.

The rules are those of a node's file (`edge_opid.config.service`), in the same order, and a mistake
is told the same way: file, line, key. `[gateway]` holds every field of `Policy` beside what
is listed here; `OPID_GATEWAY_SILENCE_S` and the like replace keys; a relative path, also that of an
SQLite file, is relative to the file's folder.

Secrets do not stand in the file. The database URL may hold a password: then it belongs in a file
of its own (`database_file`) or in `OPID_GATEWAY_DATABASE`, and no error, no `repr` ever shows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from sqlalchemy.engine import URL, make_url

from edge_opid.config.broker import BROKER, LOG, broker_options, log_level
from edge_opid.config.schema import Document, Shape, Table, check_within, kinds_of, read_text
from edge_opid.errors import SettingError
from edge_opid.link.options import MqttOptions
from gateway.fitting.settings import FITS, FitSettings, fit_settings
from gateway.policy import Group, Policy, check_groups
from gateway.secret_files import load_signing_key, read_secret
from gateway.store.database import parse_url
from gateway.web.settings import WEB, WebSettings, web_settings

__all__ = ["GatewayConfig", "load_config", "load_signing_key", "parse_config"]

OWN = {
    "database": "str",
    "database_file": "str",
    "key": "str",
    "status_file": "str",
    "lease_s": "float",
}
LEASE_S = 4.0
"""A gateway that shares its sites is given up after one and a half times this."""
SITE = "{site}"
"""What stands in the name of a credentials file where each site has its own account."""
SHAPE = Shape(
    sections={
        "gateway": OWN | kinds_of(Policy),
        "broker": BROKER,
        "fits": FITS,
        "log": LOG,
        "web": WEB,
    },
    lists={"groups": Group},
    needed=("gateway.key",),
    secret=("gateway.database",),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig:
    """Everything `opid-gateway` is told."""

    policy: Policy
    groups: tuple[Group, ...]
    broker: MqttOptions
    database: str = field(repr=False)  # an SQLAlchemy URL, its password included
    key_file: Path
    log_level: str = "info"
    status_file: Path | None = None  # how the running gateway is; none is written without
    web: WebSettings = field(default_factory=WebSettings)
    fits: FitSettings = field(default_factory=FitSettings)
    lease_s: float = LEASE_S

    @property
    def is_shared(self) -> bool:
        """Whether several gateways may share the sites of this database."""
        return make_url(self.database).get_backend_name() == "postgresql"

    @property
    def sites(self) -> tuple[str, ...]:
        """Every site that a group is in."""
        return tuple(sorted({group.site for group in self.groups}))

    def broker_of(self, site: str) -> MqttOptions:
        """How the gateway of one site reaches the broker: its session moves with the site."""
        file = self.broker.credentials
        own = None if file is None else Path(str(file).replace(SITE, site))
        name = f"{self.broker.client_id}-{site}"
        return replace(self.broker, client_id=name, credentials=own)

    @property
    def database_shown(self) -> str:
        """The database as people may see it."""
        return make_url(self.database).set(query={}).render_as_string(hide_password=True)


def load_config(path: Path, environment: Mapping[str, str]) -> GatewayConfig:
    """Read the file, apply the environment, check everything."""
    return parse_config(read_text(path), environment, path)


def parse_config(
    text: str, environment: Mapping[str, str], path: Path = Path("gateway.toml")
) -> GatewayConfig:
    r"""The configuration in `text`, which stands in `path`.

    >>> parse_config("[gateway]\nkey = 3", {}, Path("g.toml"))
    Traceback (most recent call last):
    ...
    edge_opid.errors.ConfigError: g.toml, line 2: gateway.key must be text in quotes, got 3
    """
    document = Document.parse(text, path)
    with document.blaming():
        document.override(environment, SHAPE)
        return _build(SHAPE.check(document.tables), document)


def _build(found: Table, document: Document) -> GatewayConfig:
    folder, given = document.path.parent, found["gateway"]
    policy = Policy(**{name: value for name, value in given.items() if name not in OWN})
    groups = tuple(Group(**table) for table in found.get("groups", []))
    if not groups:
        raise SettingError("groups", "are missing: add [[groups]] with id, site, classes and nodes")
    check_groups(groups)
    database = _database(given, document)
    broker = broker_options(found, "opid-gateway", folder)
    shared = make_url(database).get_backend_name() == "postgresql"
    if not shared and SITE in str(broker.credentials):
        complaint = f"must not hold {SITE} with SQLite, where one session is for all sites"
        raise SettingError("broker.credentials", complaint)
    return GatewayConfig(
        policy=policy,
        groups=groups,
        broker=broker,
        database=database,
        key_file=folder / given["key"],
        log_level=log_level(found),
        status_file=folder / given["status_file"] if given.get("status_file") else None,
        web=web_settings(found, folder),
        fits=fit_settings(found),
        lease_s=_lease_s(given),
    )


def _lease_s(given: Table) -> float:
    lease_s = float(given.get("lease_s", LEASE_S))
    check_within(lease_s, "gateway.lease_s", 1.0, 600.0)
    return lease_s


# --- the database ---------------------------------------------------------------------------------


def _database(given: Table, document: Document) -> str:
    """The URL from whichever of the two keys counts, checked and absolute."""
    key = _database_key(given, document)
    folder, name = document.path.parent, key.removeprefix("gateway.")
    if name == "database_file":
        text = read_secret(folder / given[name], "database file")
    else:
        text = given[name]
    url = parse_url(text, key)
    secret = url.password is not None or any("password" in each for each in url.query)
    if secret and name == "database" and key not in document.variables:
        raise SettingError(
            key,
            "must not hold a password, because many people can read this file: put the URL in a "
            "file of mode 600, name that as database_file, and change the password",
        )
    return _placed(url, folder, key).render_as_string(hide_password=False)


def _database_key(given: Table, document: Document) -> str:
    """The one that is there; where both are, the one the environment put there."""
    keys = [f"gateway.{name}" for name in ("database", "database_file") if name in given]
    chosen = [key for key in keys if key in document.variables] or keys
    if not chosen:
        raise SettingError(
            "gateway.database", 'is missing: add database = "sqlite:///gateway.sqlite"'
        )
    if len(chosen) == 2:
        raise SettingError(
            chosen[1], "must not be given together with database: delete one of them"
        )
    return chosen[0]


def _placed(url: URL, folder: Path, key: str) -> URL:
    """The file of SQLite seen from the configuration's folder."""
    if url.get_backend_name() != "sqlite":
        return url
    if url.database in (None, "", ":memory:"):
        raise SettingError(
            key,
            "must name a file, such as sqlite:///gateway.sqlite: a database in memory does not "
            "survive a restart",
        )
    return url.set(database=str(folder.absolute() / str(url.database)))
