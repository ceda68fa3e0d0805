"""A scenario with real processes: broker, gateway, nodes and their sensors."""
