"""The configuration files a new fleet starts with: commented, complete, and right as they are.

`docs/gateway.example.toml` is what `gateway_toml` writes; a test compares them.
"""

from __future__ import annotations

from edge_opid.config.starting_file import setting, starting_file
from edge_opid.config.toml_text import array, quoted
from gateway.setup.plan import SetupPlan

GATEWAY_TOML = """\
# The configuration of the gateway. Check it before you run it:
#
#     $ opid-gateway check gateway.toml
#
# A line that begins with "# key =" shows a default, or an option that is turned off: delete the
# leading "#" to change it. Relative paths are relative to the folder of this file.
#
# OPID_<SECTION>_<KEY> in the environment replaces a key of [gateway], [broker], [fits], [web] or
# [log]: OPID_GATEWAY_SILENCE_S=600, OPID_BROKER_HOST=10.0.0.5. Secrets are in files that only the
# gateway may read.

[gateway]
# The database for nodes, sensors, changes, labelled instances and weights: an SQLite file, or a
# PostgreSQL database: "postgresql://gateway@host/opid".
database = {database}
# A file with that URL instead, mode 600, if the URL contains a password.
# database_file = "keys/database.url"
# The key that signs what nodes obey, mode 600. Keep a copy: if it is lost, every node needs a new
# one.
key = "keys/gateway.key"
# The status of the running gateway, as JSON: its connection, all counters, and the last refusal of
# each kind (docs/refusals.md). It is written every few seconds, so put it on a RAM disk.
{status_file}
# Several gateways can share the sites of one PostgreSQL database. A gateway that cannot reach the
# database for this long stops, and after one and a half times as long the others take over its
# sites. (With SQLite there is only one gateway, and no lease.)
# lease_s = 4.0
# A sensor that is silent for longer is retired. Its node works without it from the first minute.
# silence_s = 3600.0
# Announcements about one node within this time become one change.
# settle_s = 5.0
# How many first values of a new sensor decide its reference and scale: its own, and those of other
# nodes in the group that measure the same role.
# measure_readings = 50
# A sensor that replaces a living one takes over after this many readings with both, which teach
# nodes how the new one relates to the old. 0: as soon as the new one is measured.
# overlap_readings = 50
# How long to wait for nodes to upload what they had learned before a change.
# summary_wait_s = 60.0
# Labelled instances for the first fit after a change; then twice as many each time …
# first_batch = 30
# … up to this many: then the change is closed.
# batch_max = 960
# Or after this many seconds, however many labels there are: two weeks.
# gather_s = 1209600.0
# An order that a node has not confirmed is repeated after this time, then after twice as long …
# retry_s = 30.0
# … but at least this often.
# retry_max_s = 3600.0
# λ: how strongly the classifiers with and without the vanishing sensors are tied together.
# lam = 1.0
# ρ: the ridge penalty. A larger value is more cautious while there are few labels.
# rho = 1.0
# Weights travel as "float32", or as "float16": half the bytes; each fit reports what that costs.
# weights = "float32"
# Also try kernels, for what no single matrix can express: the parity of two sensors, a ring. A fit
# takes seconds longer, and nodes get kilobytes more; each fit reports what being compact costs.
# kernels = false

[broker]
# Where the MQTT broker is.
host = {host}
# Default: 1883, or 8883 with TLS.
port = {port}
# A file of two lines, user and password, mode 600 (or 640 with the group of the service). With
# PostgreSQL each site has its own session: {{site}} stands for its name.
credentials = {credentials}
# The client id, unless the broker uses the user name instead; with PostgreSQL the site is appended.
# client_id = "opid-gateway"
# The certificate of the authority that signed the broker's certificate. This turns on TLS.
# tls_ca = "ca.pem"
# The client's own certificate and key, if the broker requires one.
# tls_certificate = "gateway.pem"
# tls_key = "keys/gateway.pem"
# A dead connection is noticed after at most twice this many seconds.
# keepalive_s = 30
# How long the broker keeps messages while this program is disconnected: a week.
# session_expiry_s = 604800
# How many messages may be unacknowledged at a time. Set mosquitto's max_inflight_messages to the
# same value.
# inflight_max = 256
# false saves an attempt if the broker only supports MQTT 3.1.1.
# mqtt_5_first = true

[fits]
# Where weights are fitted: in a "thread" of the gateway, in "processes" of this machine, or on a
# "dask" cluster. The same kind of processor gives the same result to the bit; nothing is lost if a
# worker dies.
# where = "thread"
# How many fits at once, for "processes" and "dask".
# workers = 2
# The scheduler of the Dask cluster, for "dask"; its workers need edge-opid[gateway] too.
# address = "tcp://10.0.0.5:8786"

[web]
# The web pages (`opid-gateway web`, or `run --web`): docs/web.md. By default they are served only
# to this machine, and anyone on it may operate the fleet. "0.0.0.0" opens them to the network; then
# the token is required.
# host = "127.0.0.1"
# port = 8470
# Names that browsers may use for this machine, besides its address: ["pi.local"].
# hosts = []
# The secret that people type once to log in, and that links for phones are made from; mode 600.
token = "keys/web.token"
# The account with which the pages receive predictions. Without it they show only the database.
credentials = "keys/web.credentials"
# Proxies whose X-Forwarded-For and X-Forwarded-Proto are trusted: ["127.0.0.1"].
# trusted_proxies = []

[log]
# debug, info, warning or error.
# level = "info"

# One [[groups]] table for each group: nodes of one site with the same task, which learn from each
# other. `opid-gateway init --add-nodes` adds nodes to the list and creates what they need.
{groups}"""
GROUP = """\
[[groups]]
id = {id}
site = {site}
# The classes to tell apart: the same, in the same order, as in every node.toml.
classes = {classes}
# Its nodes. A node that is not in any list is refused.
nodes = {nodes}
"""


def gateway_toml(plan: SetupPlan) -> str:
    """The gateway's file for a fleet of one group."""
    return GATEWAY_TOML.format(
        database=quoted(plan.database),
        status_file=setting("status_file", plan.status_file, "/run/opid-gateway/status.json"),
        host=quoted(plan.host),
        port=plan.port,
        credentials=quoted(f"keys/{plan.gateway_account('{site}')}.credentials"),
        groups=group_toml(plan),
    )


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
    return starting_file(
        site=plan.site,
        node=node,
        classes=plan.classes,
        host=plan.node_host,
        port=plan.node_port,
        credentials="credentials",
        keys=(key,),
        homeassistant=plan.homeassistant,
    )
