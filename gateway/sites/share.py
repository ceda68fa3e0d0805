"""Who should serve which site. No I/O: every gateway computes the same from the same tables.

1. A site goes to a living gateway whose configuration has it; where there is none, to nobody.
2. Where all gateways know all sites, their counts differ by at most one.
3. What is fair already stays where it is: a site moves only to make the counts fairer.
4. Nobody takes what a living gateway holds: that one gives it up first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

Able = Mapping[str, Collection[str]]
"""Living gateways, and the sites that each is configured for."""
Holders = Mapping[str, str]
"""Sites, and the gateway that holds each; nobody, or one that is dead, holds none."""


@dataclass(frozen=True, slots=True)
class Moves:
    """What one gateway should do now."""

    take: tuple[str, ...] = ()
    """Free sites that should be ours."""
    give: tuple[str, ...] = ()
    """Sites of ours that should be another's."""


def fair_share(able: Able, holders: Holders) -> dict[str, str]:
    """The gateway that should serve each site.

    >>> fair_share({"a": "xyz", "b": "xyz"}, {"x": "a", "y": "a", "z": "a"})
    {'x': 'a', 'y': 'a', 'z': 'b'}
    """
    living = {site: sorted(name for name in able if site in able[name]) for site in _sites(able)}
    found = {site: holders[site] for site in living if holders.get(site) in living[site]}
    counts = dict.fromkeys(sorted(able), 0)
    for name in found.values():
        counts[name] += 1
    free = sorted(living.keys() - found.keys(), key=lambda site: (len(living[site]), site))
    for site in free:  # whoever has the fewest choices chooses first
        found[site] = min(living[site], key=lambda name: counts[name])
        counts[found[site]] += 1
    while step := _fairer(found, living, counts, set(free)):
        site, name = step
        counts[found[site]] -= 1
        counts[name] += 1
        found[site] = name
    return dict(sorted(found.items()))


def moves(me: str, able: Able, holders: Holders) -> Moves:
    """What this gateway should take and give up to come nearer to the fair share.

    >>> moves("b", {"a": "xyz", "b": "xyz"}, {"x": "a", "y": "a", "z": "a"})
    Moves(take=(), give=())
    >>> moves("a", {"a": "xyz", "b": "xyz"}, {"x": "a", "y": "a", "z": "a"})
    Moves(take=(), give=('z',))
    """
    share = fair_share(able, holders)
    ours = {site for site, name in holders.items() if name == me}
    free = {site for site in share if holders.get(site) not in able}
    return Moves(
        take=tuple(site for site, name in share.items() if name == me and site in free),
        give=tuple(sorted(site for site in ours if share.get(site) != me)),
    )


def _sites(able: Able) -> list[str]:
    return sorted({site for sites in able.values() for site in sites})


def _fairer(
    found: Mapping[str, str],
    living: Mapping[str, list[str]],
    counts: Mapping[str, int],
    free: Collection[str],
) -> tuple[str, str] | None:
    """A site and a gateway that has at least two fewer than its present one: free sites first.

    Each such step makes the sum of squared counts smaller, so there is a last one.
    """
    steps = [
        (counts[found[site]] - counts[name], site in free, site, name)
        for site, names in living.items()
        for name in names
        if counts[found[site]] - counts[name] >= 2
    ]
    if not steps:
        return None
    _, _, site, name = max(steps)
    return site, name
