"""Several gateways share the sites of one PostgreSQL database: a site is served by one at a time.

Read `share` (who should serve what), `census` (who is alive), `lease` (until when we may act), then
`site_loop` (one site) and `supervisor` (all sites that this process holds). The tables and the
fence are in `gateway.store.sites`. Why it is so: docs/decisions/0047-sites-shared-by-gateways.md.
"""
