"""A home as its broker hears it: zigbee2mqtt, ESPHome, Tasmota, Shelly, and things built."""

from __future__ import annotations

import json
from typing import Any


def numeric(name: str, unit: str = "", access: int = 1, **more: Any) -> dict[str, Any]:
    found = {"type": "numeric", "name": name, "property": name, "access": access, **more}
    return {**found, "unit": unit} if unit else found


def binary(name: str, on: Any = True, off: Any = False, access: int = 1, **more: Any) -> dict:
    about = {"type": "binary", "name": name, "property": name, "access": access}
    return {**about, "value_on": on, "value_off": off, **more}


def device(name: str, *exposes: dict[str, Any], **more: Any) -> dict[str, Any]:
    definition = {"model": "X1", "vendor": "Acme", "exposes": list(exposes)}
    about = {"ieee_address": f"0x{abs(hash(name)):016x}"[:18], "type": "EndDevice"}
    return {**about, "friendly_name": name, "supported": True, "definition": definition, **more}


CLIMATE = (numeric("temperature", "°C"), numeric("humidity", "%"))
RADIO = (numeric("linkquality", "lqi"), numeric("battery", "%", category="diagnostic"))
DEVICES = [
    {"friendly_name": "Coordinator", "type": "Coordinator", "definition": None},
    device("Living Room", *CLIMATE, *RADIO),
    device("Schlafzimmer Größe 2", *CLIMATE, *RADIO),
    device("upstairs/Hall PIR", binary("occupancy"), numeric("illuminance", "lx"), *RADIO),
    device("Front door", binary("contact"), *RADIO),
    device(
        "Lamp",
        {
            "type": "light",
            "features": [
                binary("state", "ON", "OFF", 7),
                numeric("brightness", access=7),
                {
                    "type": "composite",
                    "property": "color",
                    "access": 7,
                    "features": [numeric("x", access=7), numeric("y", access=7)],
                },
            ],
        },
        {"type": "enum", "name": "effect", "property": "effect", "access": 2, "values": ["blink"]},
        numeric("transition", access=3, category="config"),
    ),
    device("Safe", {"type": "lock", "features": [binary("state", "LOCK", "UNLOCK", 7)]}),
    device("a+b", numeric("temperature")),
    {"friendly_name": "0x00158d0001", "type": "EndDevice", "supported": False, "definition": None},
]
ESPHOME = {
    "name": "Kitchen CO2",
    "stat_t": "esp-kitchen/sensor/kitchen_co2/state",
    "unit_of_meas": "ppm",
    "dev_cla": "carbon_dioxide",
    "uniq_id": "ESP1",
    "dev": {"name": "esp-kitchen", "ids": ["abc"]},
    "avty_t": "esp-kitchen/status",
}
SHELLY = {
    "device": {"name": "Boiler"},
    "components": {
        "power": {
            "p": "sensor",
            "state_topic": "shelly-1/status/switch:0",
            "value_template": "{{ value_json['apower'] | round(1) }}",
            "unit_of_measurement": "W",
            "unique_id": "s1",
        },
        "uptime": {
            "p": "sensor",
            "state_topic": "shelly-1/status/sys",
            "value_template": "{{ value_json.uptime }}",
            "entity_category": "diagnostic",
            "unique_id": "s2",
        },
        "text": {
            "p": "sensor",
            "state_topic": "shelly-1/mode",
            "value_template": "{{ 'a' if value == '1' else 'b' }}",
            "unique_id": "s3",
        },
        "toggle": {"p": "switch", "state_topic": "shelly-1/x", "command_topic": "shelly-1/set"},
    },
}
TASMOTA = {
    "dn": "Wash Machine",
    "t": "wash",
    "ft": "%prefix%/%topic%/",
    "tp": ["cmnd", "stat", "tele"],
}
ENERGY = {
    "Time": "2026-11-17T02:00:00",
    "ENERGY": {"Power": 412, "Voltage": 231, "Today": 1.2, "TotalStartTime": "2026-01-01T00:00:00"},
    "DS18B20-1": {"Id": "01", "Temperature": 41.5},
    "DS18B20-2": {"Id": "02", "Temperature": 22.0},
    "TempUnit": "C",
}
RETAINED: dict[str, Any] = {
    "zigbee2mqtt/bridge/devices": DEVICES,
    "zigbee2mqtt/bridge/state": {"state": "online"},
    "zigbee2mqtt/Living Room/availability": {"state": "online"},
    "homeassistant/sensor/esp-kitchen/kitchen_co2/config": ESPHOME,
    "homeassistant/device/shelly-1/config": SHELLY,
    "homeassistant/sensor/0x1/temperature/config": {  # zigbee2mqtt announces twice
        "state_topic": "zigbee2mqtt/Living Room",
        "value_template": "{{ value_json.temperature }}",
        "device": {"name": "Another name"},
    },
    "tasmota/discovery/AABBCC/config": TASMOTA,
    "tasmota/discovery/AABBCC/sensors": {"sn": ENERGY, "ver": 1},
    "tele/wash/LWT": "Online",
    "esp-kitchen/status": "online",
    "esp-kitchen/sensor/kitchen_co2/state": "742",
    "opid/1/home/n1/status": {"online": True},
}
LIVE: dict[str, Any] = {
    "zigbee2mqtt/Living Room": {"temperature": 21.5, "humidity": 40, "linkquality": 91},
    "zigbee2mqtt/Schlafzimmer Größe 2": {"temperature": 18.25, "humidity": None},
    "zigbee2mqtt/upstairs/Hall PIR": {"occupancy": True, "illuminance": 120},
    "zigbee2mqtt/Front door": {"contact": False},
    "zigbee2mqtt/Lamp": {"state": "ON", "brightness": 200, "color": {"x": 0.3, "y": 0.4}},
    "tele/wash/SENSOR": ENERGY,
    "tele/wash/STATE": {"Uptime": "1T00:00:00", "Heap": 25, "POWER": "ON"},
    "shelly-1/status/switch:0": {"id": 0, "apower": 1200.5},
    "esp-attic/sensor/air_temp/state": "nan",
    "esp-attic/binary_sensor/motion/state": "ON",
    "greenhouse/bench 3/soil": "0.31",
    "greenhouse/weather": {"wind": {"speed": 3.5}, "sky": "cloudy", "rain": False},
    "greenhouse/picture": b"\xff\xd8\xff",
    "greenhouse/pump/set": "ON",
}


def payload(said: Any) -> bytes:
    if isinstance(said, bytes):
        return said
    return said.encode() if isinstance(said, str) else json.dumps(said).encode()
