"""A fleet in one process: the real node and the real gateway, in a world that is made up.

What the sensors look at: `world` opens a world by name, `worlds` has what worlds are made of,
`sensors`, `sensors_reading` and `sensors_catalogue` are how it is seen, and `player` is a recorded
world instead. One seed decides everything, and time is always an argument.

What is played: `scenario` reads a TOML file of `scenarios/`, `script` says what every sensor says,
`rivals` and `score` are the models beside ours and who was right. `fleet_scripted` is a fleet that
reads it out; `simulated` plays a scenario with it on simulated time, `live` and its parts with real
processes; `report` and `demo` tell of it, `__main__` is `opid-sim`. `fleet` is what a bad minute
does, seed by seed (`soak`); `week` is what a long time does; `resets` and its parts what a real
broker does whose connections break.
"""
