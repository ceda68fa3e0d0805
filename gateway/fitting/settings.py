"""What `[fits]` in `gateway.toml` may say. No Dask is needed to read it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from edge_opid.config.schema import Table, check_within
from edge_opid.errors import SettingError, shown

FITS = {"where": "str", "address": "str", "workers": "int"}
ADDRESS = re.compile(r"(tcp|tls|ws|wss)://[^\s/]+:\d{1,5}")
WORKERS_MAX = 256


class Where(StrEnum):
    """Where fits run."""

    THREAD = "thread"
    """In the gateway, beside its loop, one at a time."""
    PROCESSES = "processes"
    """In worker processes of this machine."""
    DASK = "dask"
    """On a Dask cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FitSettings:
    """Where fits run, and how many at once.

    >>> print(FitSettings())
    in a thread of the gateway, one at a time
    >>> print(FitSettings(where=Where.DASK, address="tcp://10.0.0.5:8786"))
    on the Dask cluster at tcp://10.0.0.5:8786, up to 2 at once
    """

    where: Where = Where.THREAD
    address: str = ""
    workers: int = 2

    def __str__(self) -> str:
        if self.where is Where.THREAD:
            return "in a thread of the gateway, one at a time"
        if self.where is Where.PROCESSES:
            return f"in {self.workers} worker processes"
        return f"on the Dask cluster at {self.address}, up to {self.workers} at once"


def fit_settings(found: Table) -> FitSettings:
    """The section `[fits]`, checked; all of it may be missing."""
    given: Table = dict(found.get("fits", {}))
    if "where" in given:
        given["where"] = _where(given["where"])
    settings = FitSettings(**given)
    if settings.where is Where.THREAD and "workers" in given:
        raise SettingError("fits.workers", 'is for where = "processes" or "dask": delete it')
    check_within(settings.workers, "fits.workers", 1, WORKERS_MAX)
    if settings.where is Where.DASK and not settings.address:
        raise SettingError("fits.address", 'is missing: add address = "tcp://host:8786"')
    if settings.where is not Where.DASK and settings.address:
        raise SettingError("fits.address", 'is for where = "dask": delete it')
    if settings.address:
        check_address(settings.address, "fits.address")
    return settings


def check_address(address: str, key: str) -> None:
    """The address of a Dask scheduler."""
    if not ADDRESS.fullmatch(address):
        complaint = f"must be a scheduler's address such as tcp://host:8786, got {shown(address)}"
        raise SettingError(key, complaint)


def _where(given: str) -> Where:
    try:
        return Where(given)
    except ValueError:
        names = ", ".join(Where)
        raise SettingError("fits.where", f"must be one of {names}, got {shown(given)}") from None
