"""What Home Assistant is told of a node: one document with all of its entities, and its events.

The document lies, retained, on `<prefix>/device/<object id>/config`. Home Assistant itself reads
the node's predictions and statuses, by the templates in it, and publishes labels: no message is
made for it but this document and the events, on `<prefix>/device/<object id>/event`.

- **Availability** is the node's `status`, which is also its last will. The will has few keys, so
  every template has a default for those that may be missing.
- **A role is an entity, a sensor is not.** Its `unique_id` is made of the role, so that a sensor
  that replaces another one keeps the entity and its history; the sensor's id stands in the template
  alone.
- **An entity goes by its tombstone**: the component with nothing but its platform. One that is only
  left out would stay, unavailable for ever.
- **An answer names its instance.** The select and the button keep the instance of the prediction
  they show as an attribute, and send it back with the label.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from edge_opid.errors import WireError
from edge_opid.wire.ids import check_id
from edge_opid.wire.messages import UNKNOWN, Asked
from edge_opid.wire.sensors import SensorReturned, SensorSilent
from edge_opid.wire.topics import Channel, NodeTopics

PREFIX = "homeassistant"
"""Where Home Assistant looks for announcements unless its MQTT integration is told otherwise."""
SILENT, RETURNED, RETIRED, DEPLOYED, ASKED = "silent", "returned", "retired", "deployed", "asked"
EVENTS = (SILENT, RETURNED, RETIRED, DEPLOYED, ASKED)
ROLE = "role_"
ROLE_PLATFORM = "binary_sensor"
DIAGNOSTIC = {"entity_category": "diagnostic"}  # about the node itself: shown apart
Component = dict[str, Any]

ONLINE = "{{ 'online' if value_json.online | default(false) else 'offline' }}"
KNOWN = f"{{{{ 'offline' if value_json.label == '{UNKNOWN}' else 'online' }}}}"
LABEL = f"{{{{ None if value_json.label == '{UNKNOWN}' else value_json.label }}}}"
CONFIDENCE = (
    "{{ (100 * value_json.confidence) | round(1) if value_json.confidence is number else None }}"
)
ACCURACY = (
    "{% set found = value_json.accuracy | default({}) %}"
    "{{ (100 * ([found.model | default(0), found.own | default(0)] | max)) | round(1) "
    "if found else None }}"
)
DEGRADED = "{{ 'ON' if value_json.degraded | default([]) else 'OFF' }}"
REASONS = "{{ {'reasons': value_json.degraded | default([])} | tojson }}"
VERSION = "{{ value_json.model_version | default(0) }}"
SHOWN = "{{ {'instance': value_json.instance, 'label': value_json.label} | tojson }}"
GIVEN = (
    '{"label": {{ value | tojson }}, '
    '"instance": {{ this.attributes.instance | default(none) | tojson }}}'
)
CONFIRMED = (
    '{"label": {{ this.attributes.label | tojson }}, '
    '"instance": {{ this.attributes.instance | tojson }}}'
)


@dataclass(frozen=True, slots=True)
class Described:
    """A node as Home Assistant sees it; `roles` says which sensor has each role."""

    site: str
    node: str
    classes: tuple[str, ...]
    roles: Mapping[str, str]


def object_id(site: str, node: str) -> str:
    """The name of a node among all devices that Home Assistant knows; no two nodes share one.

    An id may hold `_`, which is doubled, and begins with a letter or a digit: so a single one can
    only be between two ids.

    >>> object_id("home", "north"), object_id("a_b", "c"), object_id("a", "b_c")
    ('opid_home_north', 'opid_a__b_c', 'opid_a_b__c')
    """
    return "_".join(("opid", _doubled(site), _doubled(node)))


def birth_topic(prefix: str) -> str:
    """Where Home Assistant says that it has started."""
    return f"{prefix}/status"


def config_topic(prefix: str, site: str, node: str) -> str:
    """Where the broker keeps the document of a node.

    >>> config_topic("homeassistant", "home", "north")
    'homeassistant/device/opid_home_north/config'
    """
    return f"{prefix}/device/{object_id(site, node)}/config"


def event_topic(prefix: str, site: str, node: str) -> str:
    """Where a node tells Home Assistant what has happened."""
    return f"{prefix}/device/{object_id(site, node)}/event"


def announcement(
    node: Described, prefix: str = PREFIX, *, leaving: Iterable[str] = (), gone: Iterable[str] = ()
) -> bytes:
    """The document of a node. Roles that go for good are `leaving` in one, then `gone` in the next.

    Home Assistant removes only what it has discovered since it was started itself. So a role that
    goes is announced once more, in full, and in the next document by its tombstone.

    >>> hall = Described("home", "north", ("dry", "damp"), {"air-temp": "temp-7"})
    >>> json.loads(announcement(hall))["components"]["role_air-temp"]["unique_id"]
    'opid_home_north_role_air-temp'
    >>> json.loads(announcement(hall, gone=["co2"]))["components"]["role_co2"]
    {'platform': 'binary_sensor'}
    """
    name, topics = object_id(node.site, node.node), NodeTopics(node.site, node.node)
    status, prediction = str(topics.to(Channel.STATUS)), str(topics.to(Channel.PREDICTION))
    label = str(topics.to(Channel.LABEL))
    components = {
        "prediction": _prediction(prediction, node.classes),
        "confidence": _confidence(prediction),
        "accuracy": _accuracy(status),
        "degraded": _degraded(status),
        "model_version": _model_version(status),
        "label": _select(prediction, label, node.classes),
        "right": _button(status, prediction, label),
        "event": _event(event_topic(prefix, node.site, node.node)),
    }
    for role, sensor in node.roles.items():
        components[ROLE + role] = _role(status, role, sensor)
    for role in leaving:
        components[ROLE + role] = _role(status, role, None)
    for key, component in components.items():
        component["unique_id"] = f"{name}_{_unique(key)}"
    for role in gone:
        components[ROLE + role] = {"platform": ROLE_PLATFORM}
    return _bytes(
        {
            "device": {
                "identifiers": [name],
                "name": node.node,
                "manufacturer": "edge-opid",
                "model": "opid-node",
            },
            "origin": {"name": "edge-opid"},
            "availability": [{"topic": status, "value_template": ONLINE}],
            "components": components,
        }
    )


class Kept(NamedTuple):
    """The roles in a document that the broker had kept: in full, and with a tombstone."""

    announced: frozenset[str]
    buried: frozenset[str]

    @classmethod
    def read(cls, payload: bytes) -> Kept:
        """What is in this document; a `WireError` where it is none.

        >>> hall = Described("home", "north", ("dry", "damp"), {"air-temp": "temp-7"})
        >>> Kept.read(announcement(hall, gone=["co2"]))
        Kept(announced=frozenset({'air-temp'}), buried=frozenset({'co2'}))
        """
        try:
            components = json.loads(payload)["components"]
            roles = {
                check_id(key.removeprefix(ROLE), "role"): len(component) > 1
                for key, component in components.items()
                if key.startswith(ROLE)
            }
        except (ValueError, RecursionError, TypeError, LookupError, AttributeError) as error:
            raise WireError("format", f"it does not announce a node: {error}") from error
        announced = frozenset(role for role, full in roles.items() if full)
        return cls(announced, frozenset(roles) - announced)


# -- events ----------------------------------------------------------------------------------------


def sensor_event(kind: str, sensor: str, role: str) -> bytes:
    """Something has happened to a sensor; after a restart only its role may be known.

    >>> sensor_event(SILENT, "temp-7", "air-temp")
    b'{"event_type": "silent", "role": "air-temp", "sensor": "temp-7"}'
    """
    return _bytes({"event_type": kind, "role": role, **({"sensor": sensor} if sensor else {})})


def kind_of(effect: object) -> str:
    """What Home Assistant calls this; empty for what it is not told.

    >>> kind_of(SensorReturned("temp-7", 0)), kind_of(3)
    ('returned', '')
    """
    match effect:
        case SensorSilent():
            return SILENT
        case SensorReturned():
            return RETURNED
        case Asked():
            return ASKED
    return ""


def question(asked: Asked, node: Described) -> bytes:
    """The node would like to know what an instance was: with all that an answer needs.

    The classes are the likeliest first, since a phone shows few buttons.
    """
    label = str(NodeTopics(node.site, node.node).to(Channel.LABEL))
    likeliest = sorted(asked.scores, key=lambda name: -asked.scores[name])
    return _bytes(
        {
            "event_type": ASKED,
            "node": node.node,
            "instance": asked.instance.plain(),
            "time_ms": asked.time_ms,
            "label": asked.label,
            "confidence": asked.confidence,
            "classes": likeliest,
            "label_topic": label,
        }
    )


# -- entities --------------------------------------------------------------------------------------


def _prediction(topic: str, classes: tuple[str, ...]) -> Component:
    return {
        "platform": "sensor",
        "name": "Prediction",
        "device_class": "enum",
        "options": list(classes),
        "state_topic": topic,
        "value_template": LABEL,
    }


def _confidence(topic: str) -> Component:
    return _percentage("Confidence", topic, CONFIDENCE)


def _accuracy(topic: str) -> Component:
    """Of the better one of the gateway's model and the node's own: one of them is served."""
    return _percentage("Accuracy", topic, ACCURACY, **DIAGNOSTIC)


def _percentage(name: str, topic: str, template: str, **more: str) -> Component:
    return {
        "platform": "sensor",
        "name": name,
        "unit_of_measurement": "%",
        "state_class": "measurement",
        "suggested_display_precision": 0,
        **more,
        "state_topic": topic,
        "value_template": template,
    }


def _degraded(topic: str) -> Component:
    return {
        "platform": "binary_sensor",
        "name": "Degraded",
        "device_class": "problem",
        **DIAGNOSTIC,
        "state_topic": topic,
        "value_template": DEGRADED,
        "json_attributes_topic": topic,
        "json_attributes_template": REASONS,
    }


def _model_version(topic: str) -> Component:
    return {
        "platform": "sensor",
        "name": "Model version",
        **DIAGNOSTIC,
        "state_topic": topic,
        "value_template": VERSION,
    }


def _select(prediction: str, label: str, classes: tuple[str, ...]) -> Component:
    return {
        "platform": "select",
        "name": "What is it now?",
        "options": list(classes),
        "state_topic": prediction,
        "value_template": LABEL,
        "json_attributes_topic": prediction,
        "json_attributes_template": SHOWN,
        "command_topic": label,
        "command_template": GIVEN,
    }


def _button(status: str, prediction: str, label: str) -> Component:
    """It can be pressed while there is a prediction that could be right."""
    return {
        "platform": "button",
        "name": "Prediction is right",
        "json_attributes_topic": prediction,
        "json_attributes_template": SHOWN,
        "command_topic": label,
        "command_template": CONFIRMED,
        "availability_mode": "all",
        "availability": [
            {"topic": status, "value_template": ONLINE},
            {"topic": prediction, "value_template": KNOWN},
        ],
    }


def _event(topic: str) -> Component:
    return {"platform": "event", "name": "Event", "event_types": list(EVENTS), "state_topic": topic}


def _role(topic: str, role: str, sensor: str | None) -> Component:
    """Whether the sensor in a role is heard; nobody has a role that is about to go."""
    heard = f"{{{{ 'OFF' if '{sensor}' in value_json.silent | default([]) else 'ON' }}}}"
    return {
        "platform": ROLE_PLATFORM,
        "name": role,
        "device_class": "connectivity",
        **DIAGNOSTIC,
        "state_topic": topic,
        "value_template": "OFF" if sensor is None else heard,
    }


def _unique(key: str) -> str:
    return ROLE + _doubled(key.removeprefix(ROLE)) if key.startswith(ROLE) else key


def _doubled(name: str) -> str:
    return name.replace("_", "__")


def _bytes(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode()
