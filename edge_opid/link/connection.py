"""One MQTT connection, from CONNECT to its end. The one file that imports paho.

paho is driven through its external-loop interface by a single thread: no lock of paho's is ever
contended, nothing of it is called from two sides, and its own reconnection (which has no jitter
and cannot change the protocol version) is not used. Every connection gets a fresh paho client, so
nothing of a former one can leak in.

paho writes what we say and reads what the broker itself says. What strangers say, every PUBLISH, is
read by the framer (`packets`): paho takes a whole connection down for text it finds odd.
"""

from __future__ import annotations

import select
import ssl
import time
from typing import Any

from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from edge_opid.link.contract import Connected, Disconnected, LinkError, SubscriptionRefused
from edge_opid.link.exchange import Exchange
from edge_opid.link.framed_socket import FramedSocket
from edge_opid.link.options import HEADER_BYTES, MqttOptions, read_credentials, tls_context
from edge_opid.link.packets import (
    Framer,
    PacketError,
    UnusablePacket,
    UsablePacket,
    publish_packet,
)
from edge_opid.link.queues import Outgoing
from edge_opid.link.versions import MQTT_5

TURN_MOST_S = 1.0  # what took longer was no turn: the machine slept, and heard nothing
PACKET_BYTES_MAX = 268_435_455  # MQTT's own limit, for a broker that names none

UNSUPPORTED_PROTOCOL = 132
# Malformed client id, bad user or password, not authorised, banned, bad authentication method:
# the same CONNECT will be refused again until somebody changes something.
REFUSALS = frozenset({133, 134, 135, 138, 140})


class Connection:
    """One life of a connection. Call `open`, then `turn` until it says False, then `close`.

    After its end: `answered` tells whether the broker ever answered CONNECT, `accepted` whether it
    took us, `unsupported` whether it refused the protocol version, `unconfirmed` whether it owed us
    a confirmation for too long, `end` why it is over.
    """

    def __init__(self, options: MqttOptions, exchange: Exchange, protocol: str) -> None:
        self.protocol = protocol
        self.opened = self.answered = self.accepted = False
        self.unsupported = self.unconfirmed = False
        self.end: Disconnected | None = None
        self._options = options
        self._exchange = exchange
        self._window = options.inflight_max
        self._packet_bytes_max = PACKET_BYTES_MAX
        self._subscribing: dict[int, list[str]] = {}  # packet id → filters
        self._deadline = 0.0
        self._owed_since_s: float | None = None  # which confirmation we wait for …
        self._waited_s = 0.0  # … and how long we have, not counting when we could not hear it
        self._looked_s = 0.0
        self._framer = Framer(mqtt_5=protocol == MQTT_5, packet_bytes_max=options.packet_bytes_max)
        self._client = self._new_client()

    def open(self) -> None:
        """Resolve, connect, shake hands, send CONNECT; raises `LinkError`."""
        options, client = self._options, self._client
        try:
            if options.credentials is not None:
                client.username_pw_set(*read_credentials(options.credentials))
            if options.tls is not None:
                client.tls_set_context(tls_context(options.tls))
            if self.protocol == MQTT_5:
                client.connect(
                    options.host,
                    options.port,
                    options.keepalive_s,
                    clean_start=not options.persistent,
                    properties=self._connect_properties(),
                )
            else:
                client.connect(options.host, options.port, options.keepalive_s)
        except (OSError, ValueError) as error:
            refused = isinstance(error, LinkError | ssl.SSLCertVerificationError)
            self.end = Disconnected(f"{self._broker} cannot be reached: {error}", refused)
            raise LinkError(self.end.reason) from error
        self.opened = True
        self._deadline = time.monotonic() + options.connect_timeout_s

    def turn(self, wait_s: float) -> bool:
        """Send what is queued, wait for the network or a ring, read. False: it is over."""
        client = self._client
        if self.accepted:
            self._send()
        else:
            wait_s = min(wait_s, self._deadline - time.monotonic())
            if wait_s <= 0:
                self.end = Disconnected(f"{self._broker} did not answer CONNECT")
                return False
        if client.want_write():
            client.loop_write()
        if client.socket() is not None and self._wait(wait_s):
            self._read()
        client.loop_misc()
        self._look_for_the_unconfirmed()
        return self.end is None and client.socket() is not None

    def close(self, *, goodbye: bool) -> Disconnected:
        """End it: with DISCONNECT, so that no will is published, or abruptly."""
        client = self._client
        if goodbye and self.accepted and client.socket() is not None:
            self._send()
            client.disconnect()
            deadline = time.monotonic() + 1.0
            while client.socket() is not None and time.monotonic() < deadline:
                client.loop_write()
                if client.want_write() and client.socket() is not None:
                    self._wait(0.05)
        socket = client.socket()
        if socket is not None:
            socket.close()
        return self.end or Disconnected("stopped" if goodbye else "aborted")

    @property
    def _broker(self) -> str:
        return f"broker {self._options.host}:{self._options.port}"

    def _new_client(self) -> _FramedClient:
        options, five = self._options, self.protocol == MQTT_5
        client = _FramedClient(
            CallbackAPIVersion.VERSION2,
            client_id=options.client_id,
            clean_session=None if five else not options.persistent,
            protocol=MQTTProtocolVersion.MQTTv5 if five else MQTTProtocolVersion.MQTTv311,
            reconnect_on_failure=False,
            manual_ack=True,
        )
        client.connect_timeout = options.connect_timeout_s
        client.max_inflight_messages_set(0)  # the window is ours: the outbox keeps it
        if options.will is not None:
            will = options.will
            client.will_set(will.topic, will.payload, will.qos, will.retain)
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_message = self._on_message
        client.on_publish = self._on_publish
        client.on_subscribe = self._on_subscribe
        # Its presence makes paho queue packets and leave the writing to `turn`.
        client.on_socket_register_write = _nothing
        return client

    def _connect_properties(self) -> Properties:
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.ReceiveMaximum = self._options.inflight_max
        properties.MaximumPacketSize = self._options.packet_bytes_max
        properties.RequestProblemInformation = 0  # no text in answers: the reason codes will do
        if self._options.persistent:
            properties.SessionExpiryInterval = self._options.session_expiry_s
        return properties

    def _send(self) -> None:
        for packet_id in self._exchange.take_acks():
            self._client.ack(packet_id, 1)
        subscribe, unsubscribe = self._exchange.take_subscriptions()
        if unsubscribe:
            self._client.unsubscribe(sorted(unsubscribe))
        if subscribe:
            self._subscribe(subscribe)
        while (message := self._exchange.take_outgoing(self._window)) is not None:
            if not self._publish(message):
                break

    def _subscribe(self, filters: dict[str, int]) -> None:
        asked: list[Any]
        if self.protocol == MQTT_5:
            asked = [(name, SubscribeOptions(qos=qos)) for name, qos in filters.items()]
        else:
            asked = list(filters.items())
        _, packet_id = self._client.subscribe(asked)
        if packet_id is not None:
            self._subscribing[packet_id] = list(filters)

    def _publish(self, message: Outgoing) -> bool:
        size = len(message.topic.encode()) + len(message.payload) + HEADER_BYTES
        if size > self._packet_bytes_max:
            reason = f"{size} bytes, and the broker takes at most {self._packet_bytes_max}"
            self._exchange.take_back(message, reason)
            return True
        info = self._client.publish(message.topic, message.payload, message.qos, message.retain)
        if info.rc != MQTTErrorCode.MQTT_ERR_SUCCESS:
            self._exchange.take_back(message)
            return False
        self._exchange.mark_sent(message, info.mid, time.monotonic())
        return True

    def _wait(self, wait_s: float) -> bool:
        """Whether there is something to read; earlier than the timeout when the waker rings."""
        socket, paused = self._client.framed, self._exchange.full
        wanted = 0 if paused else select.POLLIN
        if self._client.want_write():
            wanted |= select.POLLOUT
        pending = not paused and (self._framer.ready or socket.decrypted)
        seen = self._exchange.wait(socket.fileno(), wanted, 0.0 if pending else wait_s)
        if paused and seen & (select.POLLHUP | select.POLLERR):
            self.end = Disconnected(f"{self._broker} closed the connection while the inbox is full")
            return False
        return pending or bool(seen & ~select.POLLOUT)

    def _read(self) -> None:
        """Read once, and give every packet to whom it belongs, as far as the inbox has room."""
        data = None if self._framer.ready else self._client.framed.receive()
        if data:
            self._framer.feed(data)
        elif data is not None:
            self._client.loop_read()  # it sees the end
        try:
            while self.end is None and not self._exchange.full:
                item = self._framer.take()
                if item is None:
                    break
                self._take_in(item)
        except PacketError as error:
            self.end = Disconnected(f"{self._broker}: {error}")

    def _take_in(self, item: UsablePacket | UnusablePacket | bytes) -> None:
        if isinstance(item, bytes):
            self._pass_on(item)
        elif not self.accepted:
            self.end = Disconnected(f"{self._broker} sent a message before its answer to CONNECT")
        elif isinstance(item, UsablePacket):
            self._exchange.put(item)
        else:
            self._exchange.drop(item)
            if item.qos == 2:  # paho goes through the four steps of QoS 2 with an empty one
                none = b"" if self.protocol == MQTT_5 else None
                self._pass_on(
                    publish_packet(b"-", qos=2, packet_id=item.packet_id, properties=none)
                )

    def _pass_on(self, packet: bytes) -> None:
        """Let paho read a packet."""
        self._client.framed.give(packet)
        while self._client.framed.unread and self._client.socket() is not None:
            self._client.loop_read()

    def _look_for_the_unconfirmed(self) -> None:
        """End a connection on which a confirmation was lost: MQTT sends again on the next one."""
        now_s, since_s = time.monotonic(), self._exchange.owed_since_s
        passed_s, self._looked_s = now_s - self._looked_s, now_s
        if since_s is None or since_s != self._owed_since_s:
            self._owed_since_s, self._waited_s = since_s, 0.0
        elif not (self._exchange.full or self._client.want_write()):  # all is sent, all is read
            self._waited_s += min(passed_s, TURN_MOST_S)
        if self._waited_s > self._options.confirm_s and self.end is None:
            self.unconfirmed = True
            self.end = Disconnected(
                f"{self._broker} did not confirm a publication for {self._waited_s:.1f} s"
            )

    def _on_connect(
        self,
        _client: Client,
        _userdata: object,
        flags: ConnectFlags,
        reason: ReasonCode,
        properties: Properties | None,
    ) -> None:
        self.answered = True
        if reason.is_failure:
            self.unsupported = reason.value == UNSUPPORTED_PROTOCOL
            self.end = Disconnected(self._refusal(str(reason)), reason.value in REFUSALS)
            return
        if self.accepted:
            self.end = Disconnected(f"{self._broker} answered CONNECT twice")
            return
        self.accepted = True
        granted = getattr(properties, "ReceiveMaximum", 65_535)
        self._window = min(self._options.inflight_max, granted)
        self._packet_bytes_max = getattr(properties, "MaximumPacketSize", PACKET_BYTES_MAX)
        self._exchange.begin_connection(Connected(flags.session_present, self.protocol))

    def _refusal(self, reason: str) -> str:
        where = self._options.credentials or "none was given"
        return (
            f"{self._broker} refused client {self._options.client_id!r} on {self.protocol}: "
            f"{reason} (credentials file: {where})"
        )

    def _on_disconnect(
        self,
        _client: Client,
        _userdata: object,
        _flags: DisconnectFlags,
        reason: ReasonCode | None,
        _properties: Properties | None,
    ) -> None:
        if self.end is None and self.accepted:
            self.end = Disconnected(f"{self._broker} ended the connection: {reason}")
        elif self.end is None:
            self.end = Disconnected(f"{self._broker} closed the connection before its answer")

    def _on_message(self, client: Client, _userdata: object, message: MQTTMessage) -> None:
        """Only the empty ones of QoS 2 come this way (see `_take_in`): this is the last step."""
        client.ack(message.mid, message.qos)

    def _on_publish(
        self,
        _client: Client,
        _userdata: object,
        packet_id: int,
        reason: ReasonCode,
        _properties: Properties,
    ) -> None:
        failure = str(reason) if reason.is_failure else None
        self._exchange.confirm(packet_id, failure, time.monotonic())

    def _on_subscribe(
        self,
        _client: Client,
        _userdata: object,
        packet_id: int,
        reasons: list[ReasonCode],
        _properties: Properties,
    ) -> None:
        for name, reason in zip(self._subscribing.pop(packet_id, []), reasons, strict=False):
            if reason.is_failure:
                self._exchange.report(SubscriptionRefused(name, str(reason)))


class _FramedClient(Client):
    """paho, except that it reads through a `FramedSocket`, as it does through its websocket one."""

    framed: FramedSocket

    def _create_socket(self) -> FramedSocket:
        self.framed = FramedSocket(super()._create_socket())
        return self.framed


def _nothing(*_: object) -> None:
    """A callback that has nothing to do."""
