"""No sensors yet? Simulate a street, and let its carbon monoxide sensor die at noon.

It prints how often the learner is right in the hours around it, each reading before it is learned.

    ?
"""

from dataclasses import replace

from edge_opid import Layout, Sensor, WoodburyLearner
from firmware_sim.sensors_reading import SimulatedSensor
from firmware_sim.world import open_world

street = open_world("street", seed=7)
