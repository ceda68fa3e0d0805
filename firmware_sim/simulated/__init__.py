"""Real nodes and the real gateway on simulated time, network and disks."""
