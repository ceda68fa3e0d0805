"""A fleet in one process: the real node and the real gateway, in a world that is made up.

One seed decides everything, and time is always an argument. Read in this order:

- `world`: what sensors look at, and how they see it;
- `scenario`: a TOML file of `scenarios/`, what every sensor says in it, and who was right;
- `simulated`: clock, network, broker and disks that are made up, and real nodes, sources and a real
  gateway on them;
- `chaos`: seeds with faults (`soak`), and the witness who checks every promise;
- `live`: real processes, for a scenario, for the tests and for the benchmarks;
- `resets`: two hundred nodes on a real broker whose connections break;
- `cli`: `opid-sim`.
"""
