"""Three devices of an office, for who has none at hand: they speak as zigbee2mqtt would.

    python three_devices.py --host 127.0.0.1 --port 1883

An air sensor (CO₂, temperature), a plug that measures power and a light sensor. Somebody comes and
goes every half minute; the file `truth` says whether somebody is there, which in a real room you
would know. Create the file `plug-dead` and the plug says nothing any more; create `plug-new` and
another one speaks in its place.
"""

import argparse
import json
import random
import time
from pathlib import Path

import paho.mqtt.client as mqtt

given = argparse.ArgumentParser(description="Three devices of an office.")
given.add_argument("--host", default="127.0.0.1")
given.add_argument("--port", type=int, default=1883)
given.add_argument("--every", type=float, default=1.0, help="seconds between two readings")
given = given.parse_args()

client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
client.connect(given.host, given.port)
client.loop_start()
chance, co2 = random.Random(1), 450.0
for tick in range(100_000):
    somebody = tick // 30 % 2
    Path("truth.new").write_text("occupied" if somebody else "empty")
    Path("truth.new").rename("truth")  # at once: nobody reads half of it
    co2 += 0.2 * (450 + 350 * somebody - co2)  # it takes a while to fill a room
    watts = 20 + 70 * somebody + chance.gauss(0, 6)
    said = {
        "air": {
            "co2": round(co2 + chance.gauss(0, 25)),
            "temperature": round(chance.gauss(21, 0.4), 1),
        },
        "light": {"illuminance": round(200 + 150 * somebody + chance.gauss(0, 60))},
        "plug-2" if Path("plug-new").exists() else "plug-1": {"power": round(watts, 1)},
    }
    if Path("plug-dead").exists() and not Path("plug-new").exists():
        del said["plug-1"]
    for device, values in said.items():
        client.publish(f"zigbee2mqtt/{device}", json.dumps(values))
    time.sleep(given.every)
