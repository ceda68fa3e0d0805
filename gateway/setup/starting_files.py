"""The configuration files a new fleet starts with: commented, complete, and right as they are.

`docs/gateway.example.toml` is what `gateway_toml` writes; a test compares them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from gateway.setup.plan import SetupPlan

GATEWAY_TOML = """\
# The configuration of the gateway. Look at what it means before you run it:
#
#     $ opid-gateway check gateway.toml
#
# A line that begins with "# key =" shows a default, or an option that is off: delete the "# " to
# change it. A relative path is relative to the folder of this file.
#
# OPID_<SECTION>_<KEY> in the environment replaces a key of [gateway], [broker] or [log]:
# OPID_GATEWAY_SILENCE_S=600, OPID_BROKER_HOST=10.0.0.5. Secrets are in files that only the gateway
# may read.

[gateway]
# What the gateway must not forget: nodes, sensors, changes, labelled instances, weights. An SQLite
# file, or a PostgreSQL database: "postgresql://gateway@host/opid".
database = "sqlite:///gateway.sqlite"
# The file with that URL instead, mode 600, if the URL holds a password.
# database_file = "keys/database.url"
# The key that signs what nodes obey, mode 600. Keep a copy: without it every node needs a new one.
key = "keys/gateway.key"
# A sensor that is silent for longer is retired. Its node does without it from the first minute on.
# silence_s = 3600.0
# What is announced of one node within this time is one change.
# settle_s = 5.0
# So many first values of a new sensor decide its reference and scale: its own, and those of other
# nodes in the group that measure the same role.
# measure_readings = 50
# How long to wait for nodes to upload what they knew before a change.
# summary_wait_s = 60.0
# Labelled instances for the first fit after a change; then twice as many each time …
# first_batch = 30
# … up to so many: then the change is closed.
# batch_max = 960
# Or after so many seconds, however many labels have come: two weeks.
# gather_s = 1209600.0
# An order that a node has not confirmed is repeated after this time, then after twice as long …
# retry_s = 30.0
# … but at least this often.
# retry_max_s = 3600.0
# λ: how strongly the classifiers with and without the vanishing sensors are tied to each other.
# lam = 1.0
# ρ: the ridge. Larger is more cautious while there are few labels.
# rho = 1.0
# Weights travel as "float32", or as "float16": half the bytes; each fit reports what that costs.
# weights = "float32"
# Offer kernels, too, for what no single matrix can tell: the parity of two sensors, a ring. A fit
# takes seconds longer, and nodes get kilobytes more; each fit reports what being compact costs.
# kernels = false

[broker]
# Where the MQTT broker is.
host = {host}
# 1883 without TLS, 8883 with it, unless you say otherwise.
port = {port}
# A file of two lines, user and password, mode 600 (or 640 with the group of the service).
credentials = "keys/gateway.credentials"
# The name of our session, unless the broker calls us by our user.
# client_id = "opid-gateway"
# The certificate of the authority that the broker's certificate is checked with: this turns on TLS.
# tls_ca = "ca.pem"
# Our own certificate and its key, if the broker wants to know us by one.
# tls_certificate = "gateway.pem"
# tls_key = "keys/gateway.pem"
# A dead network is noticed after at most twice this many seconds.
# keepalive_s = 30
# How long the broker keeps what arrives while we are away: a week.
# session_expiry_s = 604800
# How many messages may be on their way unacknowledged. Set mosquitto's max_inflight_messages to it.
# inflight_max = 256
# false saves the first attempt at a broker that only knows MQTT 3.1.1.
# mqtt_5_first = true

[log]
# debug, info, warning or error.
# level = "info"

# One [[groups]] for each group: nodes of one site with the same task. What one has learned serves
# the others. `opid-gateway init --add-nodes` adds to the list and makes what a node needs.
{groups}"""
GROUP = """\
[[groups]]
id = {id}
site = {site}
# What its nodes tell apart: the same, in the same order, as in every node.toml.
classes = {classes}
nodes = {nodes}
"""
NODE_TOML = """\
# The configuration of node {node} of site {site}: carry this folder to /etc/opid-node there, say
# below which sensors it has, and look at what it means before you run it:
#
#     $ opid-node check /etc/opid-node/node.toml
#
# There are more keys: docs/node.example.toml explains all of them.

[node]
site = {quoted_site}
node = {quoted_node}
# What it tells apart: the same, in the same order, as in its group on the gateway.
classes = {classes}
# Sensors planned to go first: the node learns a second classifier without them from the start.
vanishing = []

[broker]
host = {host}
port = {port}
# User and password. The files *.credentials beside it are for the sensors: carry them to where
# their scripts run, and give each process one of its own.
credentials = "credentials"
# The certificate of the authority that the broker's certificate is checked with: this turns on TLS.
# tls_ca = "ca.pem"

[state]
folder = "/var/lib/opid-node"
status_file = "/run/opid-node/status.json"

[gateway]
# The public key of the gateway this node obeys.
keys = ["{key}"]

# One [[sensors]] for each sensor. THIS ONE IS AN EXAMPLE: replace it.
[[sensors]]
# The physical thing: the name of its values in readings.
id = "temp-1"
# What it measures: the name of its column, which a replacement takes over.
role = "temp"
# Silent for longer than this, it counts as dead until it speaks again.
timeout_s = 60.0
"""


def gateway_toml(plan: SetupPlan) -> str:
    """The gateway's file for a fleet of one group."""
    return GATEWAY_TOML.format(host=quoted(plan.host), port=plan.port, groups=group_toml(plan))


def group_toml(plan: SetupPlan) -> str:
    """One group, as it is appended to the gateway's file."""
    return GROUP.format(
        id=quoted(plan.group),
        site=quoted(plan.site),
        classes=array(plan.classes),
        nodes=array(plan.nodes),
    )


def node_toml(plan: SetupPlan, node: str, key: str) -> str:
    """The file of one node, which obeys the gateway with this public key."""
    return NODE_TOML.format(
        node=node,
        site=plan.site,
        quoted_site=quoted(plan.site),
        quoted_node=quoted(node),
        classes=array(plan.classes),
        host=quoted(plan.host),
        port=plan.port,
        key=key,
    )


def array(texts: Iterable[str]) -> str:
    """A list of texts in TOML.

    >>> array(["fresh", "stale"])
    '["fresh", "stale"]'
    """
    return f"[{', '.join(map(quoted, texts))}]"


def quoted(text: str) -> str:
    """A text in TOML, whose basic strings are those of JSON except for one character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
