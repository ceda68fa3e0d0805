"""What mosquitto reads: who may log in, who may say what where, and how it runs.

Topics are spelled out for each node, from ids; there is no `%u` pattern that a name with a slash
could escape. Rules for one name may stand in several places of the file, mosquitto adds them up: so
a node that comes later is appended, and what stands there already is not touched.

Tested with mosquitto 2.0.11.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from edge_opid.homeassistant.documents import PREFIX, birth_topic, config_topic, event_topic
from edge_opid.wire.topics import ROOT
from gateway.setup.other_broker import with_listener
from gateway.setup.plan import GATEWAY, HOMEASSISTANT, OPERATOR, SENSORS, WEB, SetupPlan
from gateway.setup.site_broker import bridge_rules

ITERATIONS = 1_000  # ten times mosquitto's own; more would not help: our passwords are random …
SALT_BYTES = 12  # … and mosquitto knows no other length
ACL_HEADER = """\
# Who may read and write what. Nobody else may anything; only the gateway may write `desired`.
# mosquitto reads this file again on SIGHUP: systemctl reload mosquitto.
#
# A node that listens to devices of another kind ([[foreign]] in its node.toml) needs their topics,
# or it hears nothing and nobody says why. `opid-gateway init --foreign "zigbee2mqtt/#"` lets every
# new node hear them; to let one, add here, with your names:
#     user street.north
#     topic read zigbee2mqtt/soil/+
"""
ALONE = """\
# The broker of a fleet: mosquitto 2, one file of its configuration.
#
#     $ sudo chown mosquitto {quoted}/passwords {quoted}/acl
#     $ sudo ln -s {quoted}/opid.conf /etc/mosquitto/conf.d/opid.conf
#     $ sudo systemctl restart mosquitto
#
# The user mosquitto must be able to enter {folder}.
# A broker that serves others already says "per_listener_settings must be set before": take
# opid-gateway init --beside, which writes its configuration so that both can live there.

# The rules below are for our listener alone.
per_listener_settings true

"""
BESIDE = """\

# The listener of a fleet, beside those above: its rules are its own, and theirs are theirs.
"""
CONF = """\
{listener}
allow_anonymous false
password_file {folder}/passwords
acl_file {folder}/acl
# A name can be connected once. Without this whoever has any password could take over the session of
# another client by its client id. So every process has a name of its own.
use_username_as_clientid true
"""
SERVICE = """\

# As many unacknowledged messages as our clients allow: 20 would make them wait for each other.
max_inflight_messages 256
# Readings for a node that is away. What does not fit is dropped; its sender sends it again.
max_queued_messages 100000
# Send at once: a reading would wait up to 40 ms for company.
set_tcp_nodelay true
"""
PERSISTENCE = """\

# Sessions and retained messages outlive a restart. A power cut costs what came since the last save:
# our sensors send again what no node has acknowledged, and the gateway repeats its orders. To save
# on every change (autosave_on_changes true) would help devices of another kind, and wear the card.
persistence true
autosave_interval 300
# Debian's mosquitto.conf says already where, and twice is an error. Elsewhere:
# persistence_location /var/lib/mosquitto/
"""
CENTRAL_PERSISTENCE = """\

# Sessions and retained messages outlive a restart. The brokers of sites forget what they sent once
# it is acknowledged, so every change is saved at once. Without the two autosave lines a crash here
# loses everything that waits for a gateway, and nodes have to say it again (docs/brokers.md).
persistence true
autosave_on_changes true
autosave_interval 1
# Debian's mosquitto.conf says already where, and twice is an error. Elsewhere:
# persistence_location /var/lib/mosquitto/
"""
OPEN = """\
# Passwords and readings travel in the clear. Beyond a network you trust, add cafile, certfile and
# keyfile here, and tls_ca to every [broker].
"""


def password_line(user: str, password: str, salt: bytes | None = None) -> str:
    """The line `mosquitto_passwd` would have written: PBKDF2 with SHA-512.

    >>> password_line("n1", "secret", bytes(12))[:28]
    'n1:$7$1000$AAAAAAAAAAAAAAAA$'
    """
    salt = os.urandom(SALT_BYTES) if salt is None else salt
    key = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, ITERATIONS)
    texts = (base64.b64encode(each).decode() for each in (salt, key))
    return f"{user}:$7${ITERATIONS}${'$'.join(texts)}\n"


def names_in(passwords: str) -> set[str]:
    r"""Who stands in the password file.

    >>> sorted(names_in("gateway:$7$1$x$y\nzigbee2mqtt:$7$1$x$y\n"))
    ['gateway', 'zigbee2mqtt']
    """
    return {line.partition(":")[0] for line in passwords.splitlines() if ":" in line}


def ended(text: str) -> str:
    r"""The text with the end of its last line, which an editor may have left out.

    >>> ended("a:b"), ended("")
    ('a:b\n', '')
    """
    return f"{text}\n" if text and not text.endswith("\n") else text


def with_rules(acl: str, plan: SetupPlan) -> str:
    """The ACL file with the rules of whoever of the plan has none yet."""
    acl = ended(acl) or ACL_HEADER
    known = _names(acl)
    topics = set(acl.splitlines())
    lines = []
    if plan.homeassistant and HOMEASSISTANT not in known:
        rights = f"topic read {PREFIX}/#", f"topic write {birth_topic(PREFIX)}"
        lines += ["", f"user {HOMEASSISTANT}", *rights]
    for node in plan.nodes:
        gate = f"topic write {ROOT}/{plan.site}/{node}/desired"  # written once, for the gateway
        if gate not in topics:
            lines += ["", f"# {ROOT}/{plan.site}/{node}", *_central_rules(plan, node)]
        if plan.site_broker is None:
            lines += _missing_node_rules(plan, node, known)
        if plan.homeassistant:
            lines += _homeassistant_rules(plan, node, acl)
    account = plan.gateway_account(plan.site)
    if plan.is_shared and account not in known:
        lines += ["", f"# the gateway of {plan.site}", *_user(account, plan, "+", GATHERS)]
    if plan.site_broker is not None and plan.bridge_account not in known:
        lines += ["", *bridge_rules(plan)]
    return acl + "".join(f"{line}\n" for line in lines)


def with_node_rules(acl: str, plan: SetupPlan) -> str:
    """The ACL file of a site's own broker, with the rules of whoever of the plan has none yet."""
    acl = ended(acl) or ACL_HEADER
    known = _names(acl)
    lines = [line for node in plan.nodes for line in _missing_node_rules(plan, node, known)]
    return acl + "".join(f"{line}\n" for line in lines)


def _names(acl: str) -> set[str]:
    return {line.removeprefix("user ") for line in acl.splitlines() if line.startswith("user ")}


GATHERS = {
    "read": ("status", "event", "summary", "reading/+", "label"),
    "write": ("desired", "confirmed", "label"),
}


def _central_rules(plan: SetupPlan, node: str) -> Iterator[str]:
    """Rights to the topics of one node, of all who are not of its site."""
    labels = ("label", "label/now")
    yield from _user(GATEWAY, plan, node, GATHERS)
    yield from _user(WEB, plan, node, {"read": ("prediction", "asked", "reading/+")})
    yield from (f"topic read {each}" for each in plan.foreign)
    yield from _user(OPERATOR, plan, node, {"read": ("#",), "write": ("event", *labels)})


def _missing_node_rules(plan: SetupPlan, node: str, known: set[str]) -> Iterator[str]:
    """Rights of a node and its sensors to its own topics."""
    own = {
        "read": ("reading/+", "label", "label/now", "confirmed", "desired"),
        "write": ("ack/+", "prediction", "asked", "status", "event", "summary"),
    }
    if plan.user(node) not in known:
        yield from _user(plan.user(node), plan, node, own)
        yield from (f"topic read {each}" for each in plan.foreign)
        yield from _source_rules(plan, node, SENSORS, "+")
    for source in plan.sources:
        if plan.user(node, source) not in known:
            yield from _source_rules(plan, node, source, source)


def _homeassistant_rules(plan: SetupPlan, node: str, acl: str) -> list[str]:
    """A node announces itself; Home Assistant hears it, and gives labels. None where they stand."""
    place = PREFIX, plan.site, node
    write = f"topic write {event_topic(*place)}"
    if write in acl.splitlines():
        return []
    announces = [f"topic readwrite {config_topic(*place)}", write]
    rights = {"read": ("prediction", "status"), "write": ("label",)}
    return [
        "",
        f"# {ROOT}/{plan.site}/{node} in Home Assistant",
        *(f"user {plan.user(node)}", f"topic read {birth_topic(PREFIX)}", *announces),
        *_user(HOMEASSISTANT, plan, node, rights),
    ]


def _source_rules(plan: SetupPlan, node: str, name: str, source: str) -> Iterator[str]:
    rights = {"read": (f"ack/{source}",), "write": (f"reading/{source}", "label")}
    return _user(plan.user(node, name), plan, node, rights)


def _user(
    name: str, plan: SetupPlan, node: str, rights: Mapping[str, Iterable[str]]
) -> Iterator[str]:
    yield f"user {name}"
    for right, channels in rights.items():
        yield from (f"topic {right} {ROOT}/{plan.site}/{node}/{each}" for each in channels)


def conf(folder: Path, plan: SetupPlan) -> str:
    """The configuration of a broker of our own whose files stand in `folder`."""
    head = ALONE.format(folder=folder, quoted=shlex.quote(str(folder)))
    keeping = PERSISTENCE if plan.site_broker is None else CENTRAL_PERSISTENCE
    return head + _listener(folder, plan.host, plan.port) + SERVICE + keeping


def site_conf(folder: Path, plan: SetupPlan) -> str:
    """The configuration of a site's own broker, without its bridge to the central one."""
    head = ALONE.format(folder=folder, quoted=shlex.quote(str(folder)))
    return head + _listener(folder, plan.node_host, plan.node_port) + SERVICE + PERSISTENCE


def conf_beside(theirs: str, folder: Path, plan: SetupPlan) -> str:
    """The whole configuration of somebody else's broker, with our listener in it.

    Whether and where it keeps its sessions is theirs to say.
    """
    listener = _listener(folder, plan.host, plan.port)
    return with_listener(theirs, BESIDE + listener + SERVICE, plan.port)


def _listener(folder: Path, host: str, port: int) -> str:
    listener = f"listener {port}"
    listener = f"{listener} {host}" if _is_loopback(host) else OPEN + listener
    return CONF.format(folder=folder, listener=listener)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
