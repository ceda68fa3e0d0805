"""Real processes: a broker, gateways, nodes; and a scenario played with them."""
