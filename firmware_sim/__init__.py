"""A fleet in one process: the real node and the real gateway, in a simulated world.

One seed determines everything, and time is always an argument. Read in this order:

- `world`: what sensors measure, and how well;
- `scenario`: a TOML file in `scenarios/`, what each sensor says in it, and who was right;
- `simulated`: a simulated clock, network, broker and disks, with real nodes, sources and a real
  gateway on them;
- `chaos`: seeds with faults (`soak`), and the witness that checks every promise;
- `live`: real processes, for a scenario, for the tests and for the benchmarks;
- `resets`: two hundred nodes on a real broker whose connections break;
- `cli`: `opid-sim`.
"""
