"""A node as a device of Home Assistant: what is announced (`documents`), and when (`announcer`).

Only a node whose configuration says `[homeassistant] discovery = true` loads this package.
"""
