"""Who should serve which site, who is alive, and until when one may act: without any I/O."""

from __future__ import annotations

from types import SimpleNamespace

from hypothesis import given, settings
from hypothesis import strategies as st

from edge_opid.service.status_file import read_status
from edge_opid.service.systemd import Systemd
from gateway.sites.census import DEAD_LEASES, Census, Member
from gateway.sites.lease import Lease
from gateway.sites.share import Moves, fair_share, moves
from gateway.sites.supervisor import Supervisor

NAMES, SITES = "abcde", [f"s{n:02}" for n in range(12)]
gateways = st.sets(st.sampled_from(NAMES), min_size=1)
any_sites = st.sets(st.sampled_from(SITES))
holdings = st.dictionaries(st.sampled_from(SITES), st.sampled_from([*NAMES, "dead", ""]))


def counts(share, names):
    return [sum(each == name for each in share.values()) for name in names]


@given(gateways, any_sites, holdings)
def test_every_site_has_one_gateway_and_the_counts_differ_by_one_at_most(names, sites, holders):
    """Gateways have died and come, and one of them holds nearly everything."""
    able = dict.fromkeys(names, sites)
    share = fair_share(able, holders)
    assert share.keys() == sites
    assert set(share.values()) <= names
    if sites:
        assert max(counts(share, names)) - min(counts(share, names)) <= 1


@given(st.dictionaries(st.sampled_from(NAMES), any_sites, min_size=1), holdings)
def test_nobody_is_given_a_site_that_its_configuration_does_not_have(able, holders):
    """Half of the gateways were restarted with a site more, the others will be tomorrow."""
    share = fair_share(able, holders)
    assert share.keys() == set().union(*able.values())
    assert all(site in able[name] for site, name in share.items())


@given(gateways, any_sites, holdings)
def test_only_what_is_too_much_is_given_up(names, sites, holders):
    """A site that moves is served by nobody for a second: no move without a reason."""
    able = dict.fromkeys(names, sites)
    held = {site: name for site, name in holders.items() if site in sites}
    fewest = len(sites) // len(names)
    for name in names:
        mine = [site for site, holder in held.items() if holder == name]
        given_up = [site for site in mine if fair_share(able, held)[site] != name]
        assert len(mine) - len(given_up) >= min(len(mine), fewest)
        assert not given_up or len(mine) > fewest


@settings(max_examples=60)
@given(gateways, any_sites, holdings, st.randoms(use_true_random=False))
def test_in_whatever_order_they_act_no_site_is_taken_from_the_living_and_all_end_fair(
    names, sites, holders, random
):
    """Each acts on what it read, in any order, and soon nobody has anything left to do."""
    able, held = dict.fromkeys(names, sites), dict(holders)
    for _ in range(2 * len(names) + 2):
        for me in random.sample(sorted(names), len(names)):
            wanted = moves(me, able, held)
            for site in wanted.take:
                assert held.get(site) not in names
                held[site] = me
            for site in wanted.give:
                held[site] = ""
    assert all(moves(me, able, held) == Moves() for me in names)
    assert {site: name for site, name in held.items() if site in sites} == fair_share(able, held)


# -- who is alive, and until when ------------------------------------------------------------------


def member(name, beat, lease_s):
    return Member(
        name=name,
        host="pi",
        pid=1,
        key="",
        lease_s=lease_s,
        sites=(),
        since_ms=0,
        seen_ms=0,
        beat=beat,
    )


class Tick:
    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        return self.now_s


pauses = st.lists(st.floats(0.001, 12.0), min_size=1, max_size=30)


@settings(max_examples=300)
@given(pauses, pauses, st.floats(0.5, 1.5), st.floats(1.0, 6.0))
def test_whoever_is_dead_to_others_has_stopped_acting_before(beats, looks, delay, lease_s):
    """It is frozen for any time, between any two heartbeats; its words arrive late; others look at
    any moments. Clocks are not compared: only their pace is shared.
    """
    clock = Tick()
    lease, census = Lease(lease_s, clock), Census()
    # what happens, in order: heartbeats are sent, arrive `delay` later, and the other one looks
    sent, at = [], 0.0
    for pause in beats:
        at += pause
        sent.append(at)
    looked, at = [], 0.0
    for pause in looks:
        at += pause
        looked.append(at)
    events = sorted(
        [(s + delay, "arrived", s) for s in sent]
        + [(moment, "looked", moment) for moment in looked]
    )
    beat, terms, dead_terms = 0, [], set()
    for clock.now_s, what, moment in events:
        if what == "arrived":
            beat += 1
            terms.append(lease.renew(moment))
            continue
        living = census.look([member("it", beat, lease_s)], moment, moment)
        if not living:
            dead_terms.update(terms)
        for term in dead_terms:
            assert not lease.is_valid(term)


def test_a_lease_that_ran_out_is_not_revived_by_a_late_heartbeat():
    """Frozen, woken, and the first thing to run is the heartbeat: what was begun before is over."""
    clock = Tick()
    lease = Lease(4.0, clock)
    term = lease.renew(0.0)
    clock.now_s = 100.0
    later = lease.renew(100.0)
    assert not lease.is_valid(term)
    assert lease.is_valid(later)
    clock.now_s = 104.1
    assert not lease.is_valid(later)


def test_a_stranger_is_watched_for_a_whole_lease_and_a_half_before_it_is_dead():
    """Whoever has just started knows nothing of the others: it must not take what they hold."""
    census, row = Census(), member("old", 7, 4.0)
    assert census.look([row], 1_000.0, 1_000.5)
    assert census.look([row], 1_000.5 + DEAD_LEASES * 4.0, 1_010.0)
    assert not census.look([row], 1_000.6 + DEAD_LEASES * 4.0, 1_010.0)
    assert census.look([member("old", 8, 4.0)], 1_011.0, 1_011.0)


def test_whatever_is_wrong_with_its_status_a_supervisor_goes_on(tmp_path):
    """A site changed a table while another thread read it for the status: the process ended,
    and all its sites with it.
    """

    class Broken:
        def health(self):
            raise RuntimeError("dictionary changed size during iteration")

    session = SimpleNamespace(name="a")
    lease, file = Lease(4.0, Tick()), tmp_path / "status.json"
    supervisor = Supervisor(session, lease, None, Systemd({}), file)
    supervisor._sites["x"] = Broken()
    supervisor._write_status(running=False)
    assert not file.exists()
    del supervisor._sites["x"]
    supervisor._write_status(running=False)
    assert read_status(file)["noted"]["status-file-refused"]["count"] == 1
