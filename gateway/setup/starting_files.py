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
# A line that begins with "# key =" shows a default, or an option that is off: delete the "# " to
# change it. A relative path is relative to the folder of this file.
#
# OPID_<SECTION>_<KEY> in the environment replaces a key of [gateway], [broker], [fits], [web] or
# [log]: OPID_GATEWAY_SILENCE_S=600, OPID_BROKER_HOST=10.0.0.5. Secrets are in files that only the
# gateway may read.

[gateway]
# What the gateway must not forget: nodes, sensors, changes, labelled instances, weights. An SQLite
# file, or a PostgreSQL database: "postgresql://gateway@host/opid".
database = {database}
# The file with that URL instead, mode 600, if the URL holds a password.
# database_file = "keys/database.url"
# The key that signs what nodes obey, mode 600. Keep a copy: without it every node needs a new one.
key = "keys/gateway.key"
# How the running gateway is, as JSON: its connection, everything it counted, and the last of each
# refusal (docs/refusals.md). It is written every few seconds, so put it on a RAM disk.
{status_file}
# Several gateways may serve one PostgreSQL database: they share its sites. One that is not heard of
# for this long does nothing more, and one and a half times this after it fell silent others serve
# its sites. (With SQLite there is one gateway, and no lease.)
# lease_s = 4.0
# A sensor that is silent for longer is retired. Its node does without it from the first minute on.
# silence_s = 3600.0
# What is announced of one node within this time is one change.
# settle_s = 5.0
# So many first values of a new sensor decide its reference and scale: its own, and those of other
# nodes in the group that measure the same role.
# measure_readings = 50
# A sensor that replaces a living one takes over when both have spoken together in so many readings,
# which teach nodes how the new one follows from the old. 0: as soon as the new one is measured.
# overlap_readings = 50
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
# A file of two lines, user and password, mode 600 (or 640 with the group of the service). With
# PostgreSQL each site has a session of its own: {{site}} stands for its name.
credentials = {credentials}
# The name of our session, unless the broker calls us by our user; with PostgreSQL the site follows.
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

[fits]
# Where weights are fitted: in a "thread" of the gateway, in "processes" of this machine, or on a
# "dask" cluster. The result is the same to the bit wherever the same processor made it; a worker
# that dies loses nothing.
# where = "thread"
# How many fits at once, for "processes" and "dask".
# workers = 2
# The scheduler of the Dask cluster, for "dask"; its workers need edge-opid[gateway], too.
# address = "tcp://10.0.0.5:8786"

[web]
# The pages (`opid-gateway web`, or `run --web`): docs/web.md. As it stands they are served to this
# machine alone, and whoever uses it may operate the fleet. "0.0.0.0" lets the network in; then the
# token is asked for.
# host = "127.0.0.1"
# port = 8470
# Names by which browsers may call this machine, besides its address: ["pi.local"].
# hosts = []
# The secret that is typed once for a cookie, and that links for phones are made from; mode 600.
token = "keys/web.token"
# The account by which the pages hear what nodes predict. Without it they show the database alone.
credentials = "keys/web.credentials"
# Proxies whose X-Forwarded-For and X-Forwarded-Proto are believed: ["127.0.0.1"].
# trusted_proxies = []

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
# Its nodes. One that is not in any list is refused.
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
