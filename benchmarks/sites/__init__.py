"""Several gateways, sites and brokers on one machine, and what is done to them."""
