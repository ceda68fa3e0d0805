"""A script and its broker: one that is away costs nothing, one that refuses is no secret."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support.mosquitto import HOST, Mosquitto, free_port
from support.node_process import WAIT_S, wait_until
from support.source_station import Receiver, config, decode_ack, decode_reading, encode_reading

from benchmarks.node.parts import certificates
from edge_opid.errors import SettingError
from edge_opid.link import LinkError, MqttOptions, SubscriptionGranted, SubscriptionRefused
from edge_opid.link.background import BackgroundLink
from edge_opid.source import Source, SpoolError, connect
from edge_opid.source.spool import Spool
from edge_opid.testing import MemoryBroker, MemoryLink

QUICK = {"reconnect_first_s": 0.02, "reconnect_most_s": 0.1}


def secret(path: Path, text: str) -> Path:
    path.touch(mode=0o600)
    path.write_text(text)
    return path


def attic(folder: Path, port: int, **options: object) -> Source:
    """A script's source, whose block begins when the broker has answered, however busy it is."""
    options = {"connect_s": WAIT_S, **options}
    return connect("farm", "n1", "attic", folder, host=HOST, port=port, **options)  # type: ignore[arg-type]


def waiting(folder: Path) -> int:
    """How many readings the spool holds for the next life."""
    spool = Spool(folder, 2**20)
    count, _ = spool.count_waiting()
    spool.close()
    return count


class ReceiverThread:
    """A node's intake that serves until the end of the block."""

    def __init__(self, port: int) -> None:
        self.link = BackgroundLink(MqttOptions(client_id="node", port=port, **QUICK))  # type: ignore[arg-type]
        self.receiver = Receiver(self.link)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Receiver:
        self._thread.start()
        self.link.wait_connected(WAIT_S)  # what is sent before it listens comes again much later
        return self.receiver

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(WAIT_S)
        self.link.stop()

    def _serve(self) -> None:
        while not self._over.is_set():
            self.receiver.pump(0.05)


def plain(folder: Path, port: int, **options: object) -> Source:
    """A source that speaks to a `Receiver`."""
    link = BackgroundLink(MqttOptions(client_id="sensor", port=port, **QUICK))  # type: ignore[arg-type]
    settings = config(folder, **{"background": True, "connect_s": WAIT_S, **options})
    return Source(settings, link, encode_reading, decode_reading, decode_ack)


def test_wrong_password_raises_and_names_host_user_and_remedy(tmp_path: Path) -> None:
    """A script with another's password ran for ever, sent nothing, and said nothing."""
    password = secret(tmp_path / "password", "wrong\n")
    with Mosquitto(tmp_path / "broker", users={"attic": "right"}) as broker:
        with (
            pytest.raises(LinkError) as caught,
            attic(tmp_path / "spool", broker.port, user="attic", password_file=password),
        ):
            pytest.fail("the block must not begin")
        for part in (f"{HOST}:{broker.port}", "user 'attic'", str(password), "check that"):
            assert part in str(caught.value)
        secret(password, "right\n")
        with attic(
            tmp_path / "spool", broker.port, user="attic", password_file=password, leave_s=0
        ) as good:
            assert good.trouble == ""


def test_password_changed_at_the_broker_costs_no_reading(tmp_path: Path) -> None:
    """A source that has worked takes the reading first, and raises when the block is left."""
    with Mosquitto(tmp_path / "broker") as broker, ReceiverThread(broker.port) as receiver:
        with plain(tmp_path / "spool", broker.port) as source:
            source.send({"temp": 1.0})
        assert source.unacknowledged == 0
    with Mosquitto(tmp_path / "strict", users={"attic": "right"}) as broker:
        with (
            pytest.raises(LinkError, match=r"no user.*readings left in the spool: 1\)"),
            plain(tmp_path / "spool", broker.port) as source,
        ):
            source.send({"temp": 2.0})
        assert "refused client" in source.trouble
    with (
        Mosquitto(tmp_path / "broker") as broker,
        ReceiverThread(broker.port) as later,
        plain(tmp_path / "spool", broker.port),
    ):
        pass
    assert receiver.temps() == [1.0]
    assert later.temps() == [2.0]


def test_source_that_may_not_write_raises_when_it_leaves(tmp_path: Path) -> None:
    """The broker confirms such a reading, throws it away, and only MQTT 5 says so."""
    credentials = secret(tmp_path / "credentials", "attic\nright\n")
    acl = "user attic\ntopic read opid/#\n"
    with (
        pytest.raises(LinkError, match="does not let this client write opid/1/farm/n1/reading"),
        Mosquitto(tmp_path / "broker", users={"attic": "right"}, acl=acl) as broker,
        attic(tmp_path / "spool", broker.port, credentials=credentials, leave_s=WAIT_S) as source,
    ):
        source.send({"temp": 1.0})
    assert waiting(tmp_path / "spool") == 1


def test_certificate_of_another_authority_raises(tmp_path: Path) -> None:
    """Somebody else's broker, or the wrong file: the script is told, and its reading not sent."""
    ours, others = tmp_path / "ours", tmp_path / "others"
    for folder in (ours, others):
        folder.mkdir()
        certificates(folder)
    files = {"cafile": "ca.pem", "certfile": "broker.pem", "keyfile": "broker.key"}
    tls = {option: ours / name for option, name in files.items()}
    with Mosquitto(tmp_path / "broker", tls=tls) as broker:
        with (
            pytest.raises(LinkError, match=r"certificate verify failed.*clock of this machine"),
            attic(tmp_path / "spool", broker.port, tls_ca=others / "ca.pem"),
        ):
            pytest.fail("the block must not begin")
        ids = {"tls_certificate": ours / "client.pem", "tls_key": ours / "client.key"}
        with attic(
            tmp_path / "spool", broker.port, tls_ca=ours / "ca.pem", leave_s=0, **ids
        ) as good:
            assert good.trouble == ""
    unnamed = connect("farm", "n1", "attic", tmp_path / "spool", tls_ca=ours / "ca.pem")
    assert unnamed._link._options.port == 8883
    unnamed.close()


def test_broker_that_is_away_raises_nothing_and_is_said(tmp_path: Path, caplog) -> None:
    """The spool is for that: the reading is kept, the block is left without waiting in vain."""
    with attic(tmp_path / "spool", free_port(), leave_s=3_600.0, connect_s=0.5) as source:
        source.send({"temp": 1.0})
        assert "cannot be reached" in source.trouble
    assert source.close() == source.unacknowledged == 1
    assert "readings left" in caplog.messages
    assert waiting(tmp_path / "spool") == 1


def test_leaving_the_block_waits_for_the_acknowledgement(tmp_path: Path) -> None:
    """Cron's scripts were gone before the node had committed, and fell behind for ever."""
    with Mosquitto(tmp_path / "broker") as broker:
        link = BackgroundLink(MqttOptions(client_id="node", port=broker.port))
        receiver = Receiver(link)
        link.wait_connected(WAIT_S)
        commit = threading.Timer(1.0, lambda: wait_until(applied, "the node commits"))

        def applied() -> bool:
            receiver.pump(0.1)
            return bool(receiver.applied)

        with plain(tmp_path / "spool", broker.port, leave_s=WAIT_S) as source:
            source.send({"temp": 1.0})
            commit.start()
        commit.join()
        link.stop()
    assert source.unacknowledged == source.resent == 0
    assert receiver.temps() == [1.0]


def test_node_that_is_away_is_not_waited_for_for_ever(tmp_path: Path, caplog) -> None:
    """The wait has an end; what is left is counted, logged, and in the spool."""
    with (
        Mosquitto(tmp_path / "broker") as broker,
        plain(tmp_path / "spool", broker.port, leave_s=0.2) as source,
    ):
        source.send({"temp": 1.0})
        source.send({"temp": 2.0})
    assert source.unacknowledged == 2
    assert "readings left" in caplog.messages
    assert waiting(tmp_path / "spool") == 2


def test_next_run_need_not_wait_until_the_last_one_gives_up(tmp_path: Path) -> None:
    """With the node away every run waits; the next one found the folder locked, and died."""
    with Mosquitto(tmp_path / "broker") as broker:
        first = plain(tmp_path / "spool", broker.port, leave_s=3_600.0).__enter__()
        first.send({"temp": 1.0})
        leaving = threading.Thread(target=first.close)
        leaving.start()
        with plain(tmp_path / "spool", broker.port, leave_s=WAIT_S) as second:
            leaving.join(WAIT_S)
            assert first.unacknowledged == 1
            second.send({"temp": 2.0})
            with ReceiverThread(broker.port) as receiver:
                wait_until(lambda: len(receiver.applied) == 2, "both are applied")
                assert second.close() == 0
    assert receiver.temps() == [1.0, 2.0]


def test_script_that_stays_keeps_its_folder(tmp_path: Path, monkeypatch) -> None:
    """Only who is leaving makes room: two scripts with one folder are a mistake, and told so."""
    monkeypatch.setattr("edge_opid.source.source.FOLDER_S", 0.1)
    with (
        Mosquitto(tmp_path / "broker") as broker,
        ReceiverThread(broker.port) as receiver,
        plain(tmp_path / "spool", broker.port) as source,
    ):
        with pytest.raises(SpoolError, match="give each script its own folder"):
            attic(tmp_path / "spool", broker.port)
        source.send({"temp": 1.0})
    assert receiver.temps() == [1.0]


def test_thread_hears_and_sends_while_the_script_sleeps(tmp_path: Path) -> None:
    """Nothing of the source is called after `send`; the broker is not even up by then."""
    broker = Mosquitto(tmp_path / "broker")
    with plain(tmp_path / "spool", broker.port, connect_s=0) as source:
        for n in range(3):
            source.send({"temp": float(n)})
        with broker, ReceiverThread(broker.port) as receiver:
            wait_until(lambda: source.counters.acknowledged, "the node's word is heard")
            wait_until(lambda: len(receiver.applied) == 3, "all are applied")
            assert source.drained(WAIT_S)
    assert receiver.temps() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"password_file": "p"}, "user is missing"),
        ({"credentials": "c", "user": "attic"}, "credentials has the user, too"),
        ({"tls_key": "key.pem"}, "tls_ca is missing"),
        ({"broker": MqttOptions(client_id="x"), "user": "attic"}, "leave the other arguments out"),
        ({"leave_s": -1.0}, "leave_s must be a number of at least 0"),
    ],
)
def test_arguments_that_contradict_each_other_are_refused(
    tmp_path: Path, options: dict[str, object], sentence: str
) -> None:
    """A password that nobody uses is a mistake that would be found out at the broker."""
    with pytest.raises(SettingError, match=sentence):
        connect("farm", "n1", "attic", tmp_path / "spool", **options)  # type: ignore[arg-type]
    assert not (tmp_path / "spool").exists()


@pytest.mark.parametrize("configured", [False, True])
def test_script_without_logging_is_told_what_is_left(tmp_path: Path, configured: bool) -> None:
    """Python alone prints the event and none of its fields; a script's own logging has its say."""
    script = f"""
import logging
from edge_opid.source import connect
with connect("farm", "n1", "attic", {str(tmp_path / "spool")!r}, port=1, connect_s=0.1) as source:
    source.send({{"temp": 1.0}})
    if {configured}:
        logging.basicConfig(format="mine %(message)s")
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, timeout=WAIT_S, check=True)
    last = done.stderr.decode().splitlines()[-1]
    assert (last == "mine readings left") is configured
    assert ('event="readings left"' in last and "readings=1 why=" in last) is not configured


def test_source_that_may_read_again_complains_no_longer(tmp_path: Path) -> None:
    """The broker's rules were mended: whoever looks at `trouble` must not look for it any more."""
    link = MemoryLink(MemoryBroker(), "sensor")
    settings = config(tmp_path, background=False)
    with Source(settings, link, encode_reading, decode_reading, decode_ack) as source:
        link._events.put_event(SubscriptionRefused("ack", "Not authorized"))
        source.pump()
        assert "does not let this client read ack: Not authorized" in source.trouble
        link._events.put_event(SubscriptionGranted("ack"))
        source.pump()
        assert source.trouble == ""
        assert source.send({"temp": 1.0}).seq == 1
