"""Three worlds to simulate, a recorded one, and what they are made of.

Read in this order: `chance` (random signals with an address), `regimes` (what happens when),
`truth`, `base` (what every world can do), then a world: `street`, `machine`, `greenhouse`.
`recording` is a world that somebody else has measured. `firmware_sim.world` opens one by name.
"""
