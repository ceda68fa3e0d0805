"""The source `porch` of docs/labels.md: twenty readings, some of this afternoon, most of now."""

from __future__ import annotations

import os
import sys
import time

import paho.mqtt.client as paho

from edge_opid.cli.label import typed_millis
from edge_opid.wire import Reading, encode

READINGS = 20


def times_ms() -> list[int]:
    """Of every reading: first the hours that the page names, then now."""
    hours = [typed_millis(hour, "--at", time.time) for hour in ("14:00", "14:05", "15:00")]
    now_ms = int(1000 * time.time())
    return [*filter(None, hours), *(now_ms + n for n in range(READINGS - len(hours)))]


def main(boot: int) -> None:
    """Send them all, and return when the broker has them."""
    client = paho.Client(paho.CallbackAPIVersion.VERSION2)
    client.connect("127.0.0.1", int(os.environ["PORT"]))
    client.loop_start()
    for seq, time_ms in enumerate(times_ms(), start=1):
        said = Reading(boot=boot, seq=seq, time_ms=time_ms, values={"air-1": 40.0 + seq})
        sent = client.publish("opid/1/home/north/reading/porch", encode(said), qos=1)
        sent.wait_for_publish(30)
    client.disconnect()
    client.loop_stop()


if __name__ == "__main__":
    main(int(sys.argv[1]))
