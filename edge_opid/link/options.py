"""How to reach a broker, and the bounds of a link: every number in one place."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from edge_opid.errors import SettingError
from edge_opid.link.contract import LinkError, Will
from edge_opid.wire.topics import TOPIC_BYTES_MAX

HEADER_BYTES = 64  # room for the fixed header, packet id and properties of a PUBLISH
CREDENTIALS_BYTES_MAX = 4_096  # two short lines; anything larger is another file


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The certificates, as PEM files. Without `certificate` the broker knows us by password.

    They are read again at every connection, so a renewed certificate needs no restart.
    """

    ca: Path
    certificate: Path | None = None
    key: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MqttOptions:
    """Everything a `MqttLink` can be told.

    >>> MqttOptions(host="broker.local", client_id="n1").port
    1883
    """

    client_id: str
    host: str = "127.0.0.1"
    port: int = 1883
    credentials: Path | None = None  # first line the user, second line the password; or …
    user: str = ""  # … the user here, and
    password_file: Path | None = None  # the password alone in a file
    tls: TlsFiles | None = None
    will: Will | None = None
    persistent: bool = True  # the broker keeps what arrives while we are away …
    session_expiry_s: int = 7 * 86_400  # … for a week; on 3.1.1 for as long as it likes
    keepalive_s: int = 30  # a dead network is noticed after at most twice this
    connect_timeout_s: float = 5.0
    mqtt_5_first: bool = True  # False saves the first attempt at a broker known not to have it
    mqtt_5_again_s: float = 3_600.0  # then the version first chosen is tried again
    confirm_s: float = 30.0  # a publication the broker did not confirm until then is sent again
    subscribe_again_s: float = 60.0  # a filter the broker did not grant is asked for again
    reconnect_first_s: float = 1.0
    reconnect_most_s: float = 60.0
    stable_s: float = 5.0  # a connection shorter than this does not reset the back-off
    inflight_max: int = 256  # the window, both ways: 20 would cap throughput (see ordering)
    inbox_messages_max: int = 1_024
    inbox_bytes_max: int = 4 * 2**20  # a node has 64 MB for everything
    outbox_messages_max: int = 4_096  # a prediction for each reading of sixteen senders' windows
    outbox_bytes_max: int = 2**20
    payload_bytes_max: int = 262_144  # beyond the largest summary; larger is refused or dropped

    @property
    def packet_bytes_max(self) -> int:
        """The largest packet we take: the largest payload under the longest topic."""
        return self.payload_bytes_max + TOPIC_BYTES_MAX + HEADER_BYTES

    def __post_init__(self) -> None:
        if not self.client_id:
            raise SettingError("client_id", "must not be empty: use the node's id")
        if not 0 < self.port < 65_536:
            raise SettingError(
                "port", f"of broker {self.host!r} must be 1 to 65535, got {self.port}"
            )
        if self.credentials is not None and (self.user or self.password_file is not None):
            raise SettingError(
                "credentials", "has the user, too: give credentials, or user and password_file"
            )
        if self.password_file is not None and not self.user:
            raise SettingError(
                "user", f"is missing: give the user whose password is in {self.password_file}"
            )

    def login(self) -> tuple[str, str | None] | None:
        """User and password, read now; None where we come without a name."""
        if self.credentials is not None:
            return read_credentials(self.credentials)
        if self.password_file is not None:
            return self.user, read_password(self.password_file)
        return (self.user, None) if self.user else None

    def secrets_said(self) -> str:
        """Where user and password come from, for a sentence."""
        if self.password_file is not None:
            return f"user {self.user!r}, password from {self.password_file}"
        if self.credentials is not None:
            return f"user and password from {self.credentials}"
        return f"user {self.user!r}, no password" if self.user else "no user and no password"


def read_credentials(path: Path) -> tuple[str, str]:
    """User and password from the two lines of a file that others cannot read.

    A password on a command line or in the environment is visible to every process of the machine;
    in a file of mode 600 (or 640 with the service's group) it is not.
    """
    lines = _secret_lines(path)
    if len(lines) != 2 or not lines[0]:
        raise LinkError(
            f"credentials file {path} must have 2 lines, user and password, not {len(lines)}"
        )
    return lines[0], lines[1]


def read_password(path: Path) -> str:
    """The password from the only line of a file that others cannot read."""
    lines = _secret_lines(path)
    if len(lines) != 1:
        raise LinkError(f"password file {path} must have 1 line, not {len(lines)}")
    return lines[0]


def _secret_lines(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            refuse_if_readable_by_others(path, os.fstat(file.fileno()).st_mode)
            return file.read(CREDENTIALS_BYTES_MAX).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        if isinstance(error, LinkError):
            raise
        raise LinkError(f"credentials file {path} cannot be read: {error}") from error


def refuse_if_readable_by_others(path: Path, mode: int) -> None:
    """A secret is for its owner and a group."""
    if mode & stat.S_IRWXO:
        raise LinkError(
            f"secret file {path} has mode {stat.S_IMODE(mode):04o}, which lets others in; "
            f"it must be 0600 or 0640: chmod 600 {path}"
        )
