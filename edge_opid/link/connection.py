"""One MQTT connection, from CONNECT to its end. The one file that imports paho.

paho is driven through its external-loop interface: it has no thread, no lock of it is ever
contended, and its own reconnection (which has no jitter and cannot change the protocol version) is
not used. Every connection gets a fresh paho client, so nothing of a former one can leak in.

paho connects, subscribes, keeps alive and says goodbye. Messages pass it by, both ways, and so do
their acknowledgements: what strangers say is read by the framer (`packets`), for paho takes a whole
connection down for text it finds odd; and our own publications wait in our outbox until they are
confirmed, so a second record of them, with a lock and a condition for each, would only cost time.
"""

from __future__ import annotations

import time
from functools import lru_cache
from typing import Any

from edge_opid.link.postponed import postponed

with postponed("urllib.request"):  # which paho does not use here: see there
    from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from edge_opid.link.contract import Connected, Disconnected, LinkError
from edge_opid.link.exchange import Exchange
from edge_opid.link.framed_socket import CHUNK_BYTES, FramedSocket
from edge_opid.link.options import HEADER_BYTES, MqttOptions, TlsFiles
from edge_opid.link.packets import (
    PUBACK,
    Framer,
    PacketError,
    UnusablePacket,
    UsablePacket,
    puback_packets,
    publish_packet,
    read_puback,
)
from edge_opid.link.poller import GONE, IN, OUT, Poller
from edge_opid.link.queues import ConfirmationWait, Outgoing
from edge_opid.link.versions import MQTT_5
from edge_opid.reasons import LinkReason

PACKET_BYTES_MAX = 268_435_455  # MQTT's own limit, for a broker that names none
FIRST_ID, LAST_ID = 32_768, 65_535  # of publications; paho numbers its subscriptions from 1 on

UNSUPPORTED_PROTOCOL = 132
# Malformed client id, bad user or password, not authorised, banned, bad authentication method:
# the same CONNECT will be refused again until somebody changes something.
REFUSALS = frozenset({133, 134, 135, 138, 140})
KINDS = {
    133: LinkReason.BAD_CLIENT_ID,
    134: LinkReason.BAD_CREDENTIALS,
    135: LinkReason.NOT_AUTHORISED,
    140: LinkReason.BAD_CREDENTIALS,
}
TAKEN_OVER = 142

GOODBYE_S = 1.0  # for the network to take what is left to say
UPKEEP_S = 0.5  # between two looks at the keep-alive and at what is not confirmed


class Connection:
    """One life of a connection. Call `open`, then `turn` until it says False, then `close`.

    `open` may take seconds, and touches nothing that is shared: another thread may do it.

    After its end: `answered` tells whether the broker ever answered CONNECT, `accepted` whether it
    took us, `unsupported` whether it refused the protocol version, `unconfirmed` whether it owed us
    a confirmation for too long, `hung_up` whether it ended the stream, `end` why it is over.
    """

    def __init__(
        self, options: MqttOptions, exchange: Exchange, poller: Poller, protocol: str
    ) -> None:
        self.protocol = protocol
        self.opened = self.answered = self.accepted = False
        self.unsupported = self.unconfirmed = self.hung_up = False
        self.end: Disconnected | None = None
        self._options = options
        self._exchange = exchange
        self._poller = poller
        self._window = min(options.inflight_max, LAST_ID - FIRST_ID)  # one id is always free
        self._packet_bytes_max = PACKET_BYTES_MAX
        self._subscribing: dict[int, list[str]] = {}  # packet id → filters
        self._unsubscribing: dict[int, set[str]] = {}
        self._asked_s = 0.0  # when all filters were last asked for
        self._packet_id = FIRST_ID - 1  # of the last publication
        self._properties = b"" if protocol == MQTT_5 else None  # of every publication
        self._deadline = 0.0
        self._looked_s = 0.0  # when it was seen to that the connection lives
        self._confirmation = ConfirmationWait()
        self._framer = Framer(mqtt_5=protocol == MQTT_5, packet_bytes_max=options.packet_bytes_max)
        self._client = self._new_client()

    def open(self) -> None:
        """Resolve, connect, shake hands, send CONNECT; raises `LinkError`."""
        options, client = self._options, self._client
        try:
            if (login := options.login()) is not None:
                client.username_pw_set(*login)
            if options.tls is not None:
                client.wrap_in(options.tls)
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
            unfit = options.tls is not None and _is_refused_by_tls(error)
            refused = unfit or isinstance(error, LinkError)
            sentence = f"{self._broker} cannot be reached: {error}"
            sentence += self._tls_advice() if unfit else ""
            self.end = Disconnected(sentence, refused, kind=_kind_of(error, unfit=unfit))
            raise LinkError(self.end.reason) from error
        self.opened = True
        self._deadline = time.monotonic() + options.connect_timeout_s

    def turn(self, wait_s: float) -> bool:
        """Send what is queued, wait for the network, read. False: it is over."""
        client, before = self._client, self.accepted
        if before:
            self._send()
        else:
            wait_s = min(wait_s, self._deadline - time.monotonic())
            if wait_s <= 0:
                self.end = Disconnected(
                    f"{self._broker} did not answer CONNECT", kind=LinkReason.UNANSWERED
                )
                return False
        self._write()
        if client.socket() is not None and self._wait(wait_s):
            self._read()
        # Subscribe before anybody is told that we are connected.
        if self.accepted and not before and client.socket() is not None:
            self._send()
            self._write()
        now_s = time.monotonic()
        if now_s >= self._looked_s + UPKEEP_S:
            self._looked_s = now_s
            client.loop_misc()
            self._look_for_the_unconfirmed(now_s)
            self._look_for_the_refused(now_s)
        return self.end is None and client.socket() is not None

    def close(self, *, goodbye: bool) -> Disconnected:
        """End it: with DISCONNECT, so that no will is published, or abruptly."""
        client = self._client
        if goodbye and self.accepted and client.socket() is not None:
            self._send()
            self._say_goodbye()
        socket = client.socket()
        if socket is not None:
            socket.close()
        return self.end or Disconnected(
            "stopped" if goodbye else "aborted", kind=LinkReason.STOPPED
        )

    def _say_goodbye(self) -> None:
        """Everything else first, for paho hangs up with the word."""
        client, deadline = self._client, time.monotonic() + GOODBYE_S
        self._write()
        while self._is_writing and (left_s := deadline - time.monotonic()) > 0:
            self._poller.wait(client.framed.fileno(), OUT, left_s)
            self._write()
        client.disconnect()
        client.loop_write()

    def _write(self) -> None:
        """Let paho write what it has, and send it in one piece."""
        if self._client.want_write():
            self._client.loop_write()
        self._client.framed.flush()

    @property
    def _is_writing(self) -> bool:
        return self._client.framed.unsent > 0 or self._client.want_write()

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
        client.on_subscribe = self._on_subscribe
        client.on_unsubscribe = self._on_unsubscribe
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
        exchange, client = self._exchange, self._client
        if acks := exchange.take_acks():
            client.framed.write(puback_packets(acks))
        subscribe, unsubscribe = exchange.take_subscriptions()
        if unsubscribe:
            self._unsubscribe(unsubscribe)
        if subscribe:
            self._subscribe(subscribe)
        if client.want_write():
            client.loop_write()  # whoever subscribes, and then publishes, hears it
        self._publish_queued()

    def _publish_queued(self) -> None:
        """As much as the window and the network have room for; the rest waits in its queue."""
        exchange, framed, now_s = self._exchange, self._client.framed, time.monotonic()
        while framed.unsent < CHUNK_BYTES:
            message = exchange.take_outgoing(self._window)
            if message is None:
                return
            self._publish(message, now_s)

    def _subscribe(self, filters: dict[str, int]) -> None:
        asked: list[Any]
        if self.protocol == MQTT_5:
            asked = [(name, SubscribeOptions(qos=qos)) for name, qos in filters.items()]
        else:
            asked = list(filters.items())
        _, packet_id = self._client.subscribe(asked)
        if packet_id is not None:
            self._subscribing[packet_id] = list(filters)

    def _unsubscribe(self, filters: set[str]) -> None:
        _, packet_id = self._client.unsubscribe(sorted(filters))
        if packet_id is not None:
            self._unsubscribing[packet_id] = filters

    def _publish(self, message: Outgoing, now_s: float) -> None:
        topic, payload, qos, retain = message
        name = topic.encode()
        size = len(name) + len(payload) + HEADER_BYTES
        if size > self._packet_bytes_max:
            reason = f"{size} bytes, and the broker accepts at most {self._packet_bytes_max}"
            self._exchange.refuse(message, reason)
            return
        packet_id = self._next_packet_id() if qos else 0
        self._exchange.mark_sent(message, packet_id, now_s)  # first: what fails now is sent again
        self._client.framed.write(
            publish_packet(
                name,
                payload,
                qos=qos,
                retain=retain,
                packet_id=packet_id,
                properties=self._properties,
            )
        )

    def _next_packet_id(self) -> int:
        """One that no publication in flight has; the window leaves one free."""
        packet_id = self._packet_id
        while True:
            packet_id = packet_id + 1 if packet_id < LAST_ID else FIRST_ID
            if not self._exchange.is_in_flight(packet_id):
                self._packet_id = packet_id
                return packet_id

    def _wait(self, wait_s: float) -> bool:
        """Whether there is something to read."""
        framed, paused = self._client.framed, self._exchange.mailbox.full
        wanted = 0 if paused else IN
        if self._is_writing:
            wanted |= OUT
        pending = not paused and (self._framer.ready or framed.decrypted or framed.broken)
        seen = self._poller.wait(framed.fileno(), wanted, 0.0 if pending else wait_s)
        if paused and (seen & GONE or framed.broken):
            self.end = Disconnected(f"{self._broker} closed the connection while the inbox is full")
            return False
        return pending or bool(seen & ~OUT)

    def _read(self) -> None:
        """Read once, and give every packet to whom it belongs, as far as the inbox has room."""
        framer, mailbox = self._framer, self._exchange.mailbox
        data = None if framer.ready else self._client.framed.receive()
        if data:
            framer.feed(data)
        elif data is not None:
            self.hung_up = True
        try:
            while self.end is None and not mailbox.full:
                item = framer.take()
                if item is None:
                    break
                self._take_in(item)
        except PacketError as error:
            self.end = Disconnected(f"{self._broker}: {error}")
        self._let_paho_read()

    def _take_in(self, item: UsablePacket | UnusablePacket | bytes) -> None:
        if not self.accepted:
            self._take_answer(item)
        elif isinstance(item, UsablePacket):
            self._exchange.put(item)
        elif isinstance(item, bytes):
            if item[0] >> 4 == PUBACK:
                self._take_confirmation(item)
            else:
                self._client.framed.give(item)
        else:
            self._exchange.drop(item)
            if item.qos == 2:  # paho goes through the four steps of QoS 2 with an empty one
                none = b"" if self.protocol == MQTT_5 else None
                self._client.framed.give(
                    publish_packet(b"-", qos=2, packet_id=item.packet_id, properties=none)
                )

    def _take_answer(self, item: UsablePacket | UnusablePacket | bytes) -> None:
        """The first word has to be the answer to CONNECT."""
        if not isinstance(item, bytes):
            self.end = Disconnected(f"{self._broker} sent a message before its answer to CONNECT")
            return
        self._client.framed.give(item)
        self._let_paho_read()

    def _take_confirmation(self, packet: bytes) -> None:
        packet_id, reason = read_puback(packet)
        failure = _failure_of(reason) if reason else None
        self._exchange.confirm(packet_id, failure, time.monotonic())

    def _let_paho_read(self) -> None:
        """All that it was given, and the end."""
        while self._client.framed.unread and self._client.socket() is not None:
            self._client.loop_read()

    def _look_for_the_unconfirmed(self, now_s: float) -> None:
        """End a connection on which a confirmation was lost: MQTT sends again on the next one."""
        hears = not (self._exchange.mailbox.full or self._is_writing)  # all is sent, all is read
        waited_s = self._confirmation.look(self._exchange.owed_since_s, now_s, hears=hears)
        if waited_s > self._options.confirm_s and self.end is None:
            self.unconfirmed = True
            self.end = Disconnected(
                f"{self._broker} did not confirm a publication for {waited_s:.1f} s",
                kind=LinkReason.UNCONFIRMED,
            )

    def _look_for_the_refused(self, now_s: float) -> None:
        """Ask again for what the broker did not grant: its rules may have been mended."""
        if self.accepted and now_s >= self._asked_s + self._options.subscribe_again_s:
            self._asked_s = now_s
            self._exchange.ask_again()

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
            kind = KINDS.get(reason.value, LinkReason.REFUSED)
            refused = reason.value in REFUSALS
            self.end = Disconnected(self._refusal(str(reason)), refused, kind=kind)
            return
        if self.accepted:
            self.end = Disconnected(f"{self._broker} answered CONNECT twice")
            return
        self.accepted, self._asked_s = True, time.monotonic()
        granted = getattr(properties, "ReceiveMaximum", 65_535)
        self._window = min(self._window, granted)
        self._packet_bytes_max = getattr(properties, "MaximumPacketSize", PACKET_BYTES_MAX)
        self._exchange.begin_connection(Connected(flags.session_present, self.protocol))

    def _refusal(self, reason: str) -> str:
        options = self._options
        name = self._client.username
        user = f"user {name!r}" if name is not None else "no user"
        return (
            f"{self._broker} refused client {options.client_id!r}, {user}, on {self.protocol}: "
            f"{reason} ({options.secrets_said()}); check that the broker knows this user with this "
            "password and lets the client in"
        )

    def _tls_advice(self) -> str:
        """What to look at where the broker answers, but TLS does not come about."""
        tls = self._options.tls
        return (
            f" (tls_ca: {tls.ca if tls else 'none'}); check that this port speaks TLS, that its "
            f"certificate is for {self._options.host!r} and of the authority in tls_ca, and that "
            "the clock of this machine is right"
        )

    def _on_disconnect(
        self,
        _client: Client,
        _userdata: object,
        flags: DisconnectFlags,
        reason: ReasonCode | None,
        _properties: Properties | None,
    ) -> None:
        if self.end is None and self.accepted:
            taken = reason is not None and reason.value == TAKEN_OVER
            said = flags.is_disconnect_packet_from_server
            sentence = f"{self._broker} " + (f"said goodbye: {reason}" if said else "hung up")
            if taken:
                mine = self._options.client_id
                sentence = f"{self._broker}: another client has connected as {mine!r}"
            kind = LinkReason.TAKEN_OVER if taken else LinkReason.ENDED
            self.end = Disconnected(sentence, kind=kind)
        elif self.end is None:
            self.end = Disconnected(
                f"{self._broker} closed the connection before its answer",
                kind=LinkReason.UNANSWERED,
            )

    def _on_message(self, client: Client, _userdata: object, message: MQTTMessage) -> None:
        """Only the empty ones of QoS 2 come this way (see `_take_in`): this is the last step."""
        client.ack(message.mid, message.qos)

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
                self._exchange.deny(name, str(reason))
            else:
                self._exchange.grant(name)

    def _on_unsubscribe(
        self,
        _client: Client,
        _userdata: object,
        packet_id: int,
        _reasons: list[ReasonCode],
        _properties: Properties | None,
    ) -> None:
        self._exchange.confirm_unsubscribed(self._unsubscribing.pop(packet_id, set()))


class _FramedClient(Client):
    """paho, except that it reads through a `FramedSocket`, as it does through its websocket one."""

    framed: FramedSocket
    _not_now: tuple[type[OSError], ...] = (BlockingIOError,)

    def wrap_in(self, files: TlsFiles) -> None:
        """Speak TLS."""
        from edge_opid.link.tls import NOT_NOW, tls_context  # noqa: PLC0415 - see there

        self.tls_set_context(tls_context(files))
        self._not_now = NOT_NOW

    def _create_socket(self) -> FramedSocket:
        self.framed = FramedSocket(super()._create_socket(), self._not_now)
        return self.framed


def _is_refused_by_tls(error: Exception) -> bool:
    from edge_opid.link.tls import is_refused  # noqa: PLC0415 - see there

    return is_refused(error)


def _kind_of(error: OSError | ValueError, *, unfit: bool) -> LinkReason:
    """Which line of the table an attempt to connect ended with."""
    if isinstance(error, LinkError):
        return LinkReason.SECRETS
    return LinkReason.NOT_TRUSTED if unfit else LinkReason.UNREACHABLE


@lru_cache(maxsize=16)  # "no matching subscribers" may come for every publication
def _failure_of(reason: int) -> str | None:
    """Why the broker did not take a publication; None where it did."""
    try:
        known = ReasonCode(PacketTypes.PUBACK, identifier=reason)
    except (KeyError, ValueError):
        raise PacketError(
            f"the broker sent a PUBACK with reason {reason}, which does not exist"
        ) from None
    return str(known) if known.is_failure else None


def _nothing(*_: object) -> None:
    """A callback that has nothing to do."""
