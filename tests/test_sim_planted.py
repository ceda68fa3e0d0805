"""Each precaution taken away, one at a time: the checks of the simulator must notice."""

from __future__ import annotations

import pytest

from firmware_sim.chaos.planted import PLANTS, planted
from firmware_sim.chaos.soak import run_seed

SEEDS_MAX = 500
FOUND_BY = {
    "acknowledge-before-sync": {"acknowledged reading lost", "reading lost"},
    "no-deduplication": {"reading twice"},
    "torn-tail-kept": {"history altered", "process died"},
    "commit-not-synced": {"committed record lost", "file spoilt", "acknowledged reading lost"},
    "snapshot-not-synced": {"file spoilt", "committed record lost"},
    "floor-not-stored": {"floor dropped"},
    "signature-not-checked": {"unsigned weights"},
    "gap-acknowledged": {"reading skipped"},
    "change-applied-twice": {"change applied twice"},
    "old-order-obeyed": {"floor dropped"},
    "version-used-twice": {"version used twice"},
    "sensor-trusts-the-broker": {"reading lost"},
    "acknowledge-across-boots": {"reading lost"},
    "sent-boot-joined": {"reading twice"},
    "thread-dies-silently": {"no agreement", "readings stuck"},
    "retained-learned-twice": {"reading twice"},
}


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("name", PLANTS)
def test_planted_bug_is_found(name: str) -> None:
    """Within 500 seeds, by the promise that it breaks; the same seed without it is well."""
    outcomes = (run_seed(seed, plant=name) for seed in range(1, SEEDS_MAX + 1))
    found = next((outcome for outcome in outcomes if outcome.broken), None)
    assert found is not None, f"{PLANTS[name].sentence}, and nobody noticed"
    assert found.broken is not None
    assert found.broken.promise in FOUND_BY[name]
    assert run_seed(found.seed).broken is None


def test_precaution_is_back_after_the_block() -> None:
    """Also where the run ended with an error; and a name that is none is an error."""
    real = {name: getattr(plant.owner, plant.attribute) for name, plant in PLANTS.items()}
    for name, plant in PLANTS.items():
        with pytest.raises(AssertionError), planted(name):
            assert getattr(plant.owner, plant.attribute) is not plant.instead
        assert getattr(plant.owner, plant.attribute) is real[name]
    with pytest.raises(ValueError, match="no plant 'gremlins'"), planted("gremlins"):
        pass
