"""What `[web]` in `gateway.toml` may say. No library of the extra `web` is needed to read it."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path

from edge_opid.config.schema import Table
from edge_opid.errors import SettingError, shown

WEB = {
    "host": "str",
    "port": "int",
    "hosts": "tuple[str, ...]",
    "token": "str",
    "credentials": "str",
    "trusted_proxies": "tuple[str, ...]",
}
PORT = 8470
LOOPBACK = ("127.0.0.1", "localhost", "::1")
HOST = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?|[0-9a-f:.]{2,45}")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSettings:
    """Where the pages are served, to whom, and who may do what there.

    >>> WebSettings().is_open, WebSettings(host="0.0.0.0", token=Path("web.token")).is_open
    (True, False)
    """

    host: str = "127.0.0.1"
    port: int = PORT
    hosts: tuple[str, ...] = ()  # names a browser may call us by, besides those of this machine
    token: Path | None = None  # what is exchanged for a cookie; mode 600
    credentials: Path | None = None  # of an account that may read predictions and readings
    trusted_proxies: tuple[str, ...] = ()  # addresses whose X-Forwarded-* headers are believed

    @property
    def is_open(self) -> bool:
        """Whether whoever reaches us is believed: only from this machine, and without a proxy."""
        return is_loopback(self.host) and not self.trusted_proxies

    @property
    def names(self) -> frozenset[str]:
        """What the Host header may say, without the port."""
        return frozenset((*LOOPBACK, self.host, *self.hosts))


def web_settings(found: Table, folder: Path) -> WebSettings:
    """The section `[web]`, checked; all of it may be missing."""
    given: Table = dict(found.get("web", {}))
    for name in ("token", "credentials"):
        if name in given:
            given[name] = folder / given[name]
    settings = WebSettings(**given)
    _check(settings)
    return settings


def _check(settings: WebSettings) -> None:
    if not 0 < settings.port < 65_536:
        raise SettingError("web.port", f"must be 1 to 65535, got {settings.port}")
    for key, names in (("host", (settings.host,)), ("hosts", settings.hosts)):
        for name in names:
            if not HOST.fullmatch(name):
                complaint = "must be a name or an address in small letters, without port"
                raise SettingError(f"web.{key}", f"{complaint}, got {shown(name)}")
    for proxy in settings.trusted_proxies:
        try:
            ipaddress.ip_address(proxy)
        except ValueError:
            complaint = f"must be addresses such as 127.0.0.1, got {shown(proxy)}"
            raise SettingError("web.trusted_proxies", complaint) from None
    if not settings.is_open and settings.token is None:
        raise SettingError(
            "web.token",
            "is missing: anyone who reaches this address could operate the fleet; name the file "
            "that init created, keys/web.token, or serve only on 127.0.0.1",
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach this address.

    >>> is_loopback("127.0.0.1"), is_loopback("0.0.0.0"), is_loopback("localhost")
    (True, False, True)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
