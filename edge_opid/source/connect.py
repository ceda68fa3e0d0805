"""The few lines a sensor script needs.

from edge_opid.source import connect

with connect("farm", "n1", "attic", "/var/lib/attic", host="broker.local") as source:
    source.send({"attic-temp": 21.3})
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edge_opid.link.options import MqttOptions
from edge_opid.source.source import Source, SourceConfig
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
    port: int = 1883,
    **options: Any,
) -> Source:
    """A source on a real broker. With `broker`, its host, port, password and certificates count."""
    from edge_opid.link.mqtt import MqttLink  # noqa: PLC0415  paho only where it is used

    client = f"{site}-{node}-{source}"
    link = MqttLink(broker or MqttOptions(client_id=client, host=host, port=port))
    settings = settings_for(site, node, source, folder, **options)
    return Source(settings, link, encode_reading, decode_reading, decode_ack)
