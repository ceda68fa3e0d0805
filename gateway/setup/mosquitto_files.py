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

from edge_opid.wire.topics import ROOT
from gateway.setup.plan import GATEWAY, OPERATOR, SENSORS, SetupPlan

ITERATIONS = 1_000  # ten times mosquitto's own; more would not help: our passwords are random …
SALT_BYTES = 12  # … and mosquitto knows no other length
ACL_HEADER = """\
# Who may read and write what. Nobody else may anything; only the gateway may write `desired`.
# mosquitto reads this file again on SIGHUP: systemctl reload mosquitto.
#
# A node that listens to devices of another kind ([[foreign]] in its node.toml) needs their topics,
# or it hears nothing and nobody says why. Add for each, with your names:
#     user street.north
#     topic read zigbee2mqtt/soil/+
"""
CONF = """\
# The broker of a fleet: mosquitto 2, one file of its configuration.
#
#     $ sudo chown mosquitto {quoted}/passwords {quoted}/acl
#     $ sudo ln -s {quoted}/opid.conf /etc/mosquitto/conf.d/opid.conf
#     $ sudo systemctl restart mosquitto
#
# The user mosquitto must be able to enter {folder}.

{listener}
allow_anonymous false
password_file {folder}/passwords
acl_file {folder}/acl
# A name can be connected once. Without this whoever has any password could take over the session of
# another client by its client id. So every process has a name of its own.
use_username_as_clientid true

# As many unacknowledged messages as our clients allow: 20 would make them wait for each other.
max_inflight_messages 256
# Readings for a node that is away. What does not fit is dropped; its sender sends it again.
max_queued_messages 100000
# Send at once: a reading would wait up to 40 ms for company.
set_tcp_nodelay true

# Sessions and retained messages outlive a restart. A power cut costs what came since the last save:
# our sensors send again what no node has acknowledged, and the gateway repeats its orders. To save
# on every change (autosave_on_changes true) would help devices of another kind, and wear the card.
persistence true
autosave_interval 300
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
    known = {line.removeprefix("user ") for line in acl.splitlines() if line.startswith("user ")}
    lines = []
    for node in plan.nodes:
        if plan.user(node) not in known:
            lines += ["", f"# {ROOT}/{plan.site}/{node}", *_rules(plan, node)]
        for source in plan.sources:
            if plan.user(node, source) not in known:
                lines += _source_rules(plan, node, source, source)
    return acl + "".join(f"{line}\n" for line in lines)


def _rules(plan: SetupPlan, node: str) -> Iterator[str]:
    """Everybody's rights to the topics of one node."""
    own = {
        "read": ("reading/+", "label", "desired"),
        "write": ("ack/+", "prediction", "status", "event", "summary"),
    }
    yield from _user(plan.user(node), plan, node, own)
    yield from _source_rules(plan, node, SENSORS, "+")
    gathers = ("status", "event", "summary", "reading/+", "label")
    yield from _user(GATEWAY, plan, node, {"read": gathers, "write": ("desired",)})
    yield from _user(OPERATOR, plan, node, {"read": ("#",), "write": ("event", "label")})


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
    """The configuration of a broker whose files stand in `folder`."""
    listener = f"listener {plan.port}"
    listener = f"{listener} {plan.host}" if _is_loopback(plan.host) else OPEN + listener
    return CONF.format(folder=folder, quoted=shlex.quote(str(folder)), listener=listener)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
