"""The source `porch` of docs/labels.md: twenty readings, some of an afternoon, most of now."""

from __future__ import annotations

import os
import sys
import threading
import time

import paho.mqtt.client as paho

from edge_opid.cli.label import typed_millis, typed_stretch
from edge_opid.wire import Ack, Reading, decode, encode
from firmware_sim.live.processes import WAIT_S

READINGS = 20


def times_ms() -> list[int]:
    """Of every reading: first the hours that the page names, then now."""
    now_s = time.time()
    until = "16:00", "--until"
    stretch = (typed_stretch((hour, "--from"), until, lambda: now_s) for hour in ("14:00", "15:00"))
    hours = [typed_millis("14:05", "--at", lambda: now_s), *(begin for begin, _ in stretch)]
    return [*sorted(hours), *(int(1000 * now_s) + n for n in range(READINGS - len(hours)))]


def main(boot: int) -> None:
    """Send them all, and return when the node has them."""
    done = threading.Event()

    def hear(_client: object, _data: object, message: paho.MQTTMessage) -> None:
        ack = decode(message.payload, Ack)
        if (ack.boot, ack.seq) == (boot, READINGS):
            done.set()

    client = paho.Client(paho.CallbackAPIVersion.VERSION2)
    client.on_message = hear
    client.connect("127.0.0.1", int(os.environ["PORT"]))
    client.loop_start()
    client.subscribe("opid/1/home/north/ack/porch", qos=1)
    for seq, time_ms in enumerate(times_ms(), start=1):
        said = Reading(boot=boot, seq=seq, time_ms=time_ms, values={"air-1": 40.0 + seq})
        client.publish("opid/1/home/north/reading/porch", encode(said), qos=1)
    assert done.wait(WAIT_S), "the node has not acknowledged the last of them"
    client.disconnect()
    client.loop_stop()


if __name__ == "__main__":
    main(int(sys.argv[1]))
