"""Who is refused, and that a refusal changes nothing."""

from __future__ import annotations

import asyncio
import re

import pytest

pytest.importorskip("starlette")
pytest.importorskip("httpx")

from support.web_site import LAN, PROXY, TOKEN, keys, logged_in, opened, post

from edge_opid.errors import ConfigError
from gateway.config import parse_config
from gateway.web.access import COOKIE, Keys, RateLimit, Scope
from gateway.web.app import CHANGE, READ
from gateway.web.guard import BODY_BYTES_MAX, _headers, now_ms

LABEL = {"label": "dry", "instance": "box 1 7"}
RETIRE = {"what": "retire", "sensor": "lux-2", "reason": "x"}
CHANGES = (("/label/farm/n1", LABEL), ("/operate/farm/n1/confirm", RETIRE))


@pytest.fixture
def lan(tmp_path):
    with opened(tmp_path, LAN) as (site, client):
        yield site, client


@pytest.fixture
def local(tmp_path):
    with opened(tmp_path) as (site, client):
        yield site, client


def untouched(site):
    return site.book.ask(lambda context: context.store.commands()) == []


def url_of(path):
    return path.replace("{site}/{node}", "farm/n1").replace("{number:int}", "1")


# -- sessions --------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [*READ, "/metrics"])
def test_without_a_cookie_nothing_is_shown(lan, path):
    _, client = lan
    answer = client.get(url_of(path))
    assert answer.status_code in (303, 401)
    assert answer.headers.get("location") in (None, "/login")
    assert "farm" not in answer.text


@pytest.mark.parametrize("path", CHANGE)
def test_without_a_cookie_nothing_is_changed(lan, path):
    site, client = lan
    assert post(client, url_of(path), **LABEL, **RETIRE).status_code == 303
    assert untouched(site)


def test_the_token_becomes_a_cookie_that_scripts_and_other_sites_cannot_use(lan):
    _, client = lan
    answer = post(client, "/login", token=TOKEN)
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert TOKEN not in cookie
    assert client.get("/").status_code == 200


def test_a_wrong_token_is_refused_and_soon_not_even_looked_at(lan):
    site, client = lan
    codes = [post(client, "/login", token=f"{TOKEN}{n}").status_code for n in range(12)]
    assert codes[0] == 403
    assert codes[-1] == 429
    assert "set-cookie" not in post(client, "/login", token=TOKEN).headers
    assert untouched(site)


@pytest.mark.parametrize("forge", ["other secret", "link as cookie", "scope", "cut", "noise"])
def test_a_cookie_that_we_did_not_sign_is_none(lan, forge):
    """Somebody makes one, or changes the scope of theirs."""
    site, client = lan
    mine = keys().cookie(Scope.LABEL, "farm/n1", now_ms())
    content, _, mark = mine.partition(".")
    forged = {
        "other secret": Keys("u" * 43).cookie(Scope.OPERATE, "", now_ms()),
        "link as cookie": keys().link(Scope.OPERATE, "", now_ms()),
        "scope": keys().cookie(Scope.OPERATE, "", now_ms()).partition(".")[0] + "." + mark,
        "cut": content,
        "noise": "..%00é"[:3] + "=" * 5000,
    }[forge]
    client.cookies.set(COOKIE, forged, domain="pi.local")
    for path, fields in CHANGES:
        assert post(client, path, **fields).status_code == 303, "to the login"
    assert untouched(site)


def test_a_session_is_over_when_it_is_over(lan):
    _, client = lan
    client.cookies.set(COOKIE, keys().cookie(Scope.OPERATE, "", 0), domain="pi.local")
    assert client.get("/").status_code == 303


def test_a_phone_may_label_its_node_and_nothing_else(lan):
    site, client = lan
    code = keys().link(Scope.LABEL, "farm/n1", now_ms())
    joined = post(client, "/join", code=code)
    assert joined.headers["location"] == "/label/farm/n1"
    assert client.get("/label/farm/n1").status_code == 200
    for path in ("/", "/label/farm/n2", "/operate/farm/n1", "/node/farm/n1"):
        assert client.get(path).headers["location"] == "/label/farm/n1"
    assert client.get("/api/nodes.json").status_code == 403
    assert post(client, "/operate/farm/n1/confirm", **RETIRE).status_code == 403
    assert post(client, "/label/farm/n2", **LABEL).status_code == 403
    assert untouched(site)
    assert post(client, "/label/farm/n1", **LABEL).status_code == 303
    assert not untouched(site)


def test_a_link_works_once_also_after_a_restart(tmp_path):
    code = keys().link(Scope.LABEL, "farm/n1", now_ms())
    with opened(tmp_path, LAN) as (_, client):
        assert client.get("/join").status_code == 200, "looking at it uses nothing up"
        assert post(client, "/join", code=code).status_code == 303
        client.cookies.clear()
        again = post(client, "/join", code=code)
        assert again.status_code == 403
        assert "already been used" in again.text
    with opened(tmp_path, LAN) as (_, client):
        assert post(client, "/join", code=code).status_code == 403
        assert client.get("/label/farm/n1").status_code == 303


def test_an_invitation_of_a_page_is_such_a_link_and_its_code_is_sent_to_nobody(lan):
    _, client = lan
    logged_in(client)
    text = post(client, "/node/farm/n1/invite").text
    url = re.search(r"<code>(.*?)</code>", text)[1]
    assert url.startswith("http://pi.local:8470/join#"), "what follows # stays in the browser"
    client.cookies.clear()
    assert post(client, "/join", code=url.partition("#")[2]).status_code == 303


def test_prometheus_word_opens_the_metrics_alone(lan):
    _, client = lan
    word = {"authorization": f"Bearer {keys().metrics_word}"}
    assert "opid_node_online" in client.get("/metrics", headers=word).text
    assert client.get("/", headers=word).status_code == 303
    assert client.get("/metrics", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 401


def test_the_health_needs_nobody_and_tells_nothing(lan):
    _, client = lan
    assert client.get("/healthz").text == "ok\n"


# -- other people's pages --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "origin",
    ["", "null", "http://evil.example", "https://pi.local:8470", "http://pi.local",
     "http://pi.local:8470.evil.example"],
)  # fmt: skip
def test_a_form_from_elsewhere_changes_nothing(lan, origin):
    """Another site's page posts to ours, and the browser would add the cookie."""
    site, client = lan
    logged_in(client)
    for path, fields in CHANGES:
        assert post(client, path, origin=origin, **fields).status_code == 403
    assert untouched(site)


@pytest.mark.parametrize("origin", ["http://evil.example", "http://127.0.0.1:9999", ""])
def test_a_form_from_elsewhere_changes_nothing_on_this_machine_either(local, origin):
    site, client = local
    for path, fields in CHANGES:
        assert post(client, path, origin=origin, **fields).status_code == 403
    assert untouched(site)


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:8470", "", "pi.local"])
def test_another_name_that_points_to_us_is_refused(local, host):
    """DNS rebinding: the browser believes that evil.example is here."""
    site, client = local
    headers = {"host": host, "origin": f"http://{host}"}
    assert client.get("/", headers=headers).status_code == 421
    assert client.post("/label/farm/n1", data=LABEL, headers=headers).status_code == 421
    assert client.get("/healthz", headers=headers).status_code == 421
    assert untouched(site)


def test_a_header_that_says_more_than_one_host_is_no_name_of_ours(local):
    site, _ = local
    twice = {"headers": [(b"host", b"127.0.0.1"), (b"host", b"evil.example")]}
    assert _headers(twice)["host"] == ""
    assert untouched(site)


@pytest.mark.parametrize("path", ["/", "/login", "/static/app.js", "/healthz", "/nowhere"])
def test_every_answer_forbids_to_load_anything_from_elsewhere(lan, path):
    _, client = lan
    answer = client.get(path)
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"]


# -- proxies and floods ----------------------------------------------------------------------------


def test_a_proxy_is_believed_only_where_it_is_named(tmp_path):
    forwarded = {"x-forwarded-proto": "https", "x-forwarded-for": "10.0.0.9"}
    origin = {"origin": "https://pi.local:8470"}
    with opened(tmp_path, LAN) as (site, client):
        logged_in(client)
        headers = {**forwarded, **origin}
        assert client.post("/label/farm/n1", data=LABEL, headers=headers).status_code == 403
        assert untouched(site)
    with opened(tmp_path, PROXY) as (site, client):
        headers = {**forwarded, **origin}
        answer = client.post("/login", data={"token": TOKEN}, headers=headers)
        assert "secure" in answer.headers["set-cookie"].lower()
        assert client.get("/", headers=forwarded).status_code in (200, 303)


def test_behind_a_proxy_the_token_is_asked_for_also_on_loopback(tmp_path):
    with opened(tmp_path, PROXY) as (_, client):
        assert client.get("/").status_code == 303


def test_one_address_that_asks_without_end_is_told_to_wait(local):
    site, client = local
    site.limits.every = RateLimit(per_s=0.0, burst=3)
    site.limits.changing = RateLimit(per_s=0.0, burst=0)
    assert post(client, "/label/farm/n1", **LABEL).status_code == 429
    assert [client.get("/healthz").status_code for _ in range(4)] == [200, 200, 429, 429]
    assert untouched(site)


def test_a_limit_forgets_the_oldest_address_and_grows_no_further():
    limit = RateLimit(per_s=1.0, burst=1)
    for number in range(3 * RateLimit.ADDRESSES_MAX):
        limit.take(str(number), 0)
    assert len(limit._left) == RateLimit.ADDRESSES_MAX


def test_a_large_body_is_refused_whatever_it_says_of_its_length(local):
    site, client = local
    large = b"label=dry&instance=" + b"x" * BODY_BYTES_MAX
    form = {"origin": "http://127.0.0.1:8470", "content-type": "application/x-www-form-urlencoded"}
    assert client.post("/label/farm/n1", content=large, headers=form).status_code == 413

    def pieces():
        for start in range(0, len(large), 8192):
            yield large[start : start + 8192]

    with pytest.raises(Exception, match=r".*"):  # the connection ends, there is no answer
        client.post("/label/farm/n1", content=pieces(), headers=form).raise_for_status()
    assert untouched(site)


# -- the configuration -----------------------------------------------------------------------------

START = '[gateway]\ndatabase = "sqlite:///g.sqlite"\nkey = "k"\n[[groups]]\nid = "a"\nsite = "s"\n'
START += 'classes = ["x", "y"]\nnodes = ["n"]\n'


@pytest.mark.parametrize(
    ("web", "complaint"),
    [
        ('host = "0.0.0.0"', "web.token is missing"),
        ('trusted_proxies = ["127.0.0.1"]', "web.token is missing"),
        ("port = 70000", "web.port must be 1 to 65535"),
        ('hosts = ["Pi.Local"]', "web.hosts must be a name"),
        ('hosts = ["pi.local:8470"]', "web.hosts must be a name"),
        ('host = "0.0.0.0"\ntoken = "t"\ntrusted_proxies = ["proxy"]', "web.trusted_proxies must"),
    ],
)
def test_a_configuration_that_would_let_everybody_in_is_refused(web, complaint):
    with pytest.raises(ConfigError, match=complaint):
        parse_config(f"{START}[web]\n{web}\n", {})


# -- hostile forms ---------------------------------------------------------------------------------

DIGITS = "9" * 5_000
"""More than Python turns into a number."""


@pytest.mark.parametrize("path", ["/login", "/join", "/label/farm/n1"])
def test_a_form_with_fields_without_end_is_refused_in_a_sentence(lan, path):
    """A stranger fills the log with tracebacks: no cookie is needed to send a form to the login."""
    site, client = lan
    if path.startswith("/label"):
        logged_in(client)
    answer = post(client, path, **{f"f{n}": "" for n in range(500)})
    assert answer.status_code == 400
    assert "at most" in answer.text
    assert untouched(site)


@pytest.mark.parametrize("path", ["/login", "/label/farm/n1"])
def test_a_body_that_hides_its_length_is_answered_in_a_sentence(lan, path):
    site, client = lan
    logged_in(client)
    form = {"origin": "http://pi.local:8470", "content-type": "application/x-www-form-urlencoded"}
    pieces = (b"x" * 8192 for _ in range(BODY_BYTES_MAX // 8192 + 1))
    answer = client.post(path, content=pieces, headers=form)
    assert answer.status_code == 413
    assert untouched(site)


def test_a_form_that_is_cut_off_changes_nothing(local):
    """The connection ends within the body: `sensor=lux-2` may have been going to be `lux-23`."""
    site, client = local
    parts = [
        {"type": "http.request", "body": b"label=dry&instance=box 1 7", "more_body": True},
        {"type": "http.disconnect"},
    ]
    host = b"127.0.0.1:8470"
    scope = {
        "type": "http", "method": "POST", "scheme": "http", "path": "/label/farm/n1",
        "query_string": b"", "headers": [(b"host", host), (b"origin", b"http://" + host)],
        "client": ("127.0.0.1", 5),
    }  # fmt: skip

    async def receive():
        return parts.pop(0)

    async def send(_):
        pytest.fail("answered")

    asyncio.run(client.app(scope, receive, send))
    assert untouched(site)


@pytest.mark.parametrize("number", [DIGITS, str(2**63), str(2**64)])
def test_a_number_that_no_database_has_is_unknown_and_no_error_of_ours(local, number):
    """Python refuses to read the first, SQLite to take the others."""
    site, client = local
    for path in ("/command/{}", "/change/{}", "/api/change/{}.json"):
        assert client.get(path.format(number)).status_code in (404, 414)
    assert client.get(f"/label/farm/n1?given={number}").status_code in (200, 414)
    assert client.get(f"/node/farm/n1?hours={number}").status_code in (200, 414)
    assert post(client, "/label/farm/n1/undo", given=number).status_code in (200, 400)
    assert untouched(site)


def test_a_cookie_of_another_program_on_this_host_does_not_hide_ours(lan):
    """Browsers send the cookies of all ports of a name; others write what they like into theirs."""
    _, client = lan
    mine = f"{COOKIE}={keys().cookie(Scope.OPERATE, '', now_ms())}"
    for theirs in ('prefs={"a": [1, 2]}', "ü=1", "a b c", 'x="'):
        headers = {"cookie": f"{theirs}; {mine}".encode()}
        assert client.get("/", headers=headers).status_code == 200, theirs


def test_a_flood_is_refused_before_its_cookies_are_looked_at(lan, monkeypatch):
    site, client = lan
    site.limits.every = RateLimit(per_s=0.0, burst=0)
    monkeypatch.setattr(Keys, "session", lambda *_: pytest.fail("looked at"))
    headers = {"cookie": f"{COOKIE}=x.y"}
    assert client.get("/", headers=headers).status_code == 429


def test_the_many_addresses_of_one_ipv6_network_are_counted_as_one():
    """Whoever has an IPv6 address usually has 2⁶⁴ of them."""
    limit = RateLimit(per_s=0.0, burst=2)
    assert [limit.take(f"2001:db8::{n}", 0) for n in range(3)] == [True, True, False]
    assert limit.take("2001:db8:0:1::1", 0)
    assert [limit.take(f"10.0.0.{n}", 0) for n in range(3)] == [True, True, True]


def test_a_link_that_was_used_stays_used_when_the_clock_is_a_little_off(lan):
    """Two looks at the clock, or one that is set back: a used link must not come to life again."""
    site, _ = lan
    link = keys().opened_link(keys().link(Scope.LABEL, "farm/n1", 0), 0)

    def use(now):
        return site.book.ask(lambda c: c.store.use_link(link.nonce, link.ends_ms, now))

    assert use(link.ends_ms - 1)
    assert not use(link.ends_ms + 1), "it was checked a moment before, when it was still good"
    assert not use(link.ends_ms - 60_000)
