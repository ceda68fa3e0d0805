"""What devices a broker has: from its messages to proposals for a `node.toml`. No I/O.

Read `heard` (messages in, by topic), `values` (what a message may hold that a node could use),
`zigbee2mqtt`, `homeassistant`, `tasmota` and `plain` (who announces what, and how; the first that
knows a value names it), `names` (how a device's name becomes an id) and `proposal` (TOML out, with
what could not be mapped and why).
"""
