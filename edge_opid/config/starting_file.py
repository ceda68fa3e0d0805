"""The `node.toml` that a node starts with: commented, right as it is, and to be edited.

`opid-node init` writes one for a node alone, `opid-gateway init` one for each node of a fleet.
"""

from __future__ import annotations

from collections.abc import Iterable

from edge_opid.config.toml_text import array, quoted

HEAD = """\
# The configuration of node {node} of site {site}: it belongs into /etc/opid-node. Say below which
# sensors it has, let the service's user read the folder, and look at what it means:
#
#     $ sudo opid-node init
#     $ sudo opid-node check /etc/opid-node/node.toml
#
# There are more keys: docs/node.example.toml explains all of them.

[node]
site = {quoted_site}
node = {quoted_node}
# What it tells apart: where there is a gateway, the same and in the same order as in its group.
classes = {classes}
# Sensors that are expected to go first: from the start, the node learns a second classifier without
# them.
vanishing = []

[broker]
host = {host}
port = {port}
# User and password, two lines, in a file that the service's user may read. Files *.credentials
# beside it, if a gateway made this folder, are for the sensors: carry them to where their scripts
# run, and give each process one of its own.
{credentials}
# The certificate of the authority that signed the broker's certificate. This turns on TLS.
{tls_ca}

[state]
folder = "/var/lib/opid-node"
status_file = "/run/opid-node/status.json"

[gateway]
# The public keys of the gateway this node obeys. None: it obeys nobody.
keys = {keys}

[homeassistant]
# true: announce this node to Home Assistant, as a device with entities (docs/homeassistant.md).
{discovery}

[serve]
# A predictor to serve instead of the node's own ones: a file that the gateway exported.
# tflite = "model.tflite"

"""
EXAMPLE_SENSOR = """\
# One [[sensors]] table for each sensor. THIS ONE IS AN EXAMPLE: replace it.
[[sensors]]
# The physical device: the name of its values in readings.
id = "temp-1"
# What it measures: the name of its column, which a replacement takes over.
role = "temp"
"""


def starting_file(
    *,
    site: str,
    node: str,
    classes: Iterable[str],
    host: str,
    port: int,
    credentials: str | None = None,
    tls_ca: str | None = None,
    keys: Iterable[str] = (),
    homeassistant: bool = False,
    sensors: str = EXAMPLE_SENSOR,
) -> str:
    """The file of one node; `sensors` are the lines of its `[[sensors]]` and `[[foreign]]`."""
    head = HEAD.format(
        node=node,
        site=site,
        quoted_site=quoted(site),
        quoted_node=quoted(node),
        classes=array(classes),
        host=quoted(host),
        port=port,
        credentials=setting("credentials", credentials, "credentials"),
        tls_ca=setting("tls_ca", tls_ca, "ca.pem"),
        keys=array(keys),
        discovery="discovery = true" if homeassistant else "# discovery = false",
    )
    return head + sensors


def setting(key: str, value: str | None, example: str) -> str:
    """A line of the file; one that only shows how it would look, where there is no value.

    >>> setting("tls_ca", None, "ca.pem")
    '# tls_ca = "ca.pem"'
    """
    return f"# {key} = {quoted(example)}" if value is None else f"{key} = {quoted(value)}"
