"""The sections that every program of ours writes alike: `[broker]` and `[log]`.

Secrets do not stand in them: `credentials` and `tls_key` name files. A relative path is relative to
the file's folder.
"""

from __future__ import annotations

from pathlib import Path

from edge_opid.config.schema import Table
from edge_opid.errors import SettingError, shown
from edge_opid.link.options import MqttOptions, TlsFiles

LEVELS = ("debug", "info", "warning", "error")
BROKER = {
    "host": "str",
    "port": "int",
    "client_id": "str",
    "credentials": "str",
    "tls_ca": "str",
    "tls_certificate": "str",
    "tls_key": "str",
    "keepalive_s": "int",
    "session_expiry_s": "int",
    "inflight_max": "int",
    "mqtt_5_first": "bool",
}
LOG = {"level": "str"}
RANGES = {
    "broker.port": (1, 65_535),
    "broker.keepalive_s": (1, 65_535),
    "broker.session_expiry_s": (0, 2**32 - 1),
    "broker.inflight_max": (1, 65_535),
}


def log_level(found: Table) -> str:
    """The level of the section `[log]`, if there is one.

    >>> log_level({}), log_level({"log": {"level": "debug"}})
    ('info', 'debug')
    """
    level: str = found.get("log", {}).get("level", "info")
    if level not in LEVELS:
        raise SettingError("log.level", f"must be one of {', '.join(LEVELS)}, got {shown(level)}")
    return level


def broker_options(found: Table, client_id: str, folder: Path) -> MqttOptions:
    """How to reach the broker that `[broker]` names; `client_id` is ours unless it says otherwise.

    >>> broker_options({"broker": {"tls_ca": "ca.pem"}}, "opid-gateway", Path("/etc")).port
    8883
    """
    given: Table = found.get("broker", {})
    _check(given)
    options = {name: value for name, value in given.items() if not name.startswith("tls_")}
    if "credentials" in options:
        options["credentials"] = folder / options["credentials"]
    tls = _tls(given, folder)
    options.setdefault("port", 1883 if tls is None else 8883)
    options.setdefault("client_id", client_id)
    return MqttOptions(tls=tls, **options)


def _check(given: Table) -> None:
    for key, (low, high) in RANGES.items():
        value = given.get(key.removeprefix("broker."), low)
        if not low <= value <= high:
            raise SettingError(key, f"must be from {low} to {high}, got {value}")
    for name in ("host", "client_id"):
        if given.get(name, "-") == "":
            raise SettingError(f"broker.{name}", "must not be empty")


def _tls(given: Table, folder: Path) -> TlsFiles | None:
    paths = {name: folder / given[name] for name in given if name.startswith("tls_")}
    for name, needs in {"tls_certificate": "tls_ca", "tls_key": "tls_certificate"}.items():
        if name in paths and needs not in paths:
            raise SettingError(f"broker.{name}", f"needs {needs} beside it")
    if not paths:
        return None
    return TlsFiles(paths["tls_ca"], paths.get("tls_certificate"), paths.get("tls_key"))
