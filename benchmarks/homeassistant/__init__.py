"""The newest Home Assistant, with a node, a gateway and mosquitto: `make ha`."""
