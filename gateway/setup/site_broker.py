"""A broker for one site, bridged to the central one: what travels between them, and what does not.

Nodes, their sensors and whoever reads predictions stay on the site's broker, which goes on when the
line is cut. To the centre travel status, events (labelled instances among them) and summaries; back
come orders, confirmations and labels. Readings stay: a new sensor whose reference and scale are not
given cannot be measured by the gateway, unless the line for readings is turned on.
"""

from __future__ import annotations

from collections.abc import Iterator

from edge_opid.wire.topics import ROOT
from gateway.setup.plan import SetupPlan

OUT = ("status", "event", "summary")
IN = ("desired", "confirmed", "label", "label/now")
BRIDGE_CONF = """\
# The bridge of site {site} to the central broker: the last lines of this broker's configuration.
# It holds a password. Let the broker alone read it.
#
#     $ sudo chown mosquitto: {{folder}}/bridge.conf
#     $ sudo ln -s {{folder}}/bridge.conf /etc/mosquitto/conf.d/opid-bridge.conf

connection opid-{site}
address {host}:{port}
remote_username {user}
remote_password {{password}}
remote_clientid {user}
# What waits for the centre is kept until it is back, and comes once: QoS 1 in a session that stays.
cleansession false
restart_timeout 1 30
keepalive_interval 30
# The centre is not told that we come and go: nobody there asks for it.
notifications false
{topics}
# To let the gateway measure new sensors, and its pages show readings and predictions:
# topic +/reading/+ out 1 {prefix} {prefix}
# topic +/prediction out 0 {prefix} {prefix}
# topic +/asked out 0 {prefix} {prefix}
"""


def bridge_conf(plan: SetupPlan, folder: str, password: str) -> str:
    """The lines that make the site's broker a client of the central one."""
    prefix = f"{ROOT}/{plan.site}/"
    topics = [f"topic +/{each} out 1 {prefix} {prefix}" for each in OUT]
    topics += [f"topic +/{each} in 1 {prefix} {prefix}" for each in IN]
    text = BRIDGE_CONF.format(
        site=plan.site,
        host=plan.host,
        port=plan.port,
        user=plan.bridge_account,
        prefix=prefix,
        topics="\n".join(topics),
    )
    return text.format(folder=folder, password=password)


def bridge_rules(plan: SetupPlan) -> Iterator[str]:
    """What the site's broker may do at the central one: nothing but this."""
    yield f"# the broker of {plan.site}"
    yield f"user {plan.bridge_account}"
    yield from (f"topic write {ROOT}/{plan.site}/+/{each}" for each in OUT)
    yield from (f"topic read {ROOT}/{plan.site}/+/{each}" for each in IN)
