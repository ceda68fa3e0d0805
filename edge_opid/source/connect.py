"""The few lines a sensor script needs.

from edge_opid.source import connect

with connect("farm", "n1", "attic", "/var/lib/attic", host="broker.local") as source:
    source.send({"attic-temp": 21.3})
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edge_opid import log
from edge_opid.errors import SettingError
from edge_opid.link.options import MqttOptions, TlsFiles
from edge_opid.source.settings import SourceConfig
from edge_opid.source.source import Source
from edge_opid.wire import Ack, Channel, NodeTopics, Reading, decode, encode


def encode_reading(
    boot: int, seq: int, time_ms: int, values: Mapping[str, float], label: str | None
) -> bytes:
    """A reading's bytes, as `Source` wants them."""
    return encode(Reading(boot, seq, time_ms, dict(values), label))


def decode_reading(payload: bytes) -> tuple[int, Mapping[str, float], str | None]:
    """(time_ms, values, label) of a reading, all but its number, as `Source` wants them."""
    reading = decode(payload, Reading)
    return reading.time_ms, reading.values, reading.label


def decode_ack(payload: bytes) -> tuple[int, int, int]:
    """(boot, seq, newest) of an acknowledgement, as `Source` wants them."""
    ack = decode(payload, Ack)
    return ack.boot, ack.seq, ack.newest


def settings_for(
    site: str, node: str, source: str, folder: str | Path, **options: Any
) -> SourceConfig:
    """The settings of one source of one node; `options` are those of `SourceConfig`.

    >>> settings_for("farm", "n1", "attic", "spool").reading_topic
    'opid/1/farm/n1/reading/attic'
    """
    topics = NodeTopics(site, node)
    return SourceConfig(
        folder=Path(folder),
        reading_topic=str(topics.to(Channel.READING, source)),
        ack_topic=str(topics.to(Channel.ACK, source)),
        **options,
    )


def connect(
    site: str,
    node: str,
    source: str,
    folder: str | Path,
    broker: MqttOptions | None = None,
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    user: str = "",
    password_file: str | Path | None = None,
    credentials: str | Path | None = None,
    tls_ca: str | Path | None = None,
    tls_certificate: str | Path | None = None,
    tls_key: str | Path | None = None,
    **options: Any,
) -> Source:
    """A source on a real broker; `options` are those of `SourceConfig`.

    `password_file` has one line. `credentials`, to be used instead of it and `user`, has two: user
    and password. Others must not be able to read these files. `tls_ca` is the authority that
    signed the broker's certificate; the default port is then 8883 instead of 1883. `broker` can
    replace all of these arguments. Warnings go to stderr, unless you have set up Python's logging.
    """
    from edge_opid.link.background import BackgroundLink  # noqa: PLC0415  paho only where it is used

    if broker is None:
        broker = MqttOptions(
            client_id=f"{site}-{node}-{source}",
            host=host,
            port=port or (8883 if tls_ca is not None else 1883),
            user=user,
            password_file=_path(password_file),
            credentials=_path(credentials),
            tls=_tls_files(tls_ca, tls_certificate, tls_key),
        )
    elif (host, port) != ("127.0.0.1", None) or any(
        (user, password_file, credentials, tls_ca, tls_certificate, tls_key)
    ):
        raise SettingError("broker", "has host, user and TLS files: leave the other arguments out")
    log.show_unless_configured()
    settings = settings_for(site, node, source, folder, **options)
    link = BackgroundLink(broker)
    try:
        return Source(settings, link, encode_reading, decode_reading, decode_ack)
    except BaseException:
        link.stop()
        raise


def _path(name: str | Path | None) -> Path | None:
    return None if name is None else Path(name)


def _tls_files(
    ca: str | Path | None, certificate: str | Path | None, key: str | Path | None
) -> TlsFiles | None:
    if ca is not None:
        return TlsFiles(Path(ca), _path(certificate), _path(key))
    if certificate is not None or key is not None:
        raise SettingError(
            "tls_ca", "is missing: name the authority that signed the broker's certificate"
        )
    return None
