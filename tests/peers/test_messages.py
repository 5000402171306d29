"""What the roles accept and what they refuse: no bytes from outside can crash them or be taken for a report."""

from __future__ import annotations

import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labeldp.errors import LabelDPError
from labeldp.peers import Learner, Peer, Roster, Terms
from labeldp.peers.messages import FIELDS, Refused, encode, read
from labeldp.peers.roles import Seat

TERMS = Terms(
    run="r",
    alpha=0.1,
    theta=1.0,
    rendezvous="",
    learner="",
    timeout=1.0,
    join_timeout=1.0,
    least_share=0.5,
    host=None,
)
EVERYONE = frozenset({0, 1})
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def learner() -> Learner:
    return Learner(roster=Roster.of([0, 0, 0]), terms=TERMS)


def report(hearer: Learner, peer: int, label: object = 1, **changes: object) -> bytes:
    fields = {"peer": peer, "ticket": hearer.roster.tickets.get(peer, "none"), "label": label, **changes}
    return encode("report", run="r", **fields)


def test_the_first_word_of_a_survivor_counts_and_no_other():
    hearer = learner()
    hearer.hear(report(hearer, 0, 1), survivors=EVERYONE)
    hearer.hear(report(hearer, 0, 0), survivors=EVERYONE)  # repeated
    hearer.hear(report(hearer, 2, 0), survivors=EVERYONE)  # lost before the close
    hearer.hear(report(hearer, 9, 0), survivors=EVERYONE)  # nobody
    assert hearer.reports == {0: 1}
    assert hearer.roster.refused == {"repeated": 1, "not a survivor": 1, "unknown sender": 1}


def test_an_abstention_cannot_be_followed_by_a_report():
    hearer = learner()
    hearer.hear(encode("abstain", run="r", peer=1, ticket=hearer.roster.tickets[1]), survivors=EVERYONE)
    hearer.hear(report(hearer, 1, 1), survivors=EVERYONE)
    assert hearer.reports == {}
    assert hearer.roster.refused == {"repeated": 1}


@pytest.mark.parametrize("label", [2, -1, True, False, 1.0, "1", None, [1], {"a": 1}])
def test_a_label_is_zero_or_one_and_a_number(label):
    hearer = learner()
    hearer.hear(report(hearer, 0, label), survivors=EVERYONE)
    assert hearer.reports == {}
    assert hearer.roster.refused == {"bad value": 1}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        (b"[" * 4000, "not JSON"),
        (b"1" * 4096, "wrong kind"),
        (b" " * 5000, "too long"),
        (b"[]", "wrong kind"),
        (b'{"kind": ["report"], "run": "r"}', "wrong kind"),
        (encode("hello", run="r", peer=0, ticket="t", address="a"), "wrong kind"),
        (encode("report", run="s", peer=0, ticket="t", label=1), "another run"),
        (encode("report", run="r", peer=0, ticket="t"), "wrong fields"),
        (encode("report", run="r", peer=0, ticket="t", label=1, raw=1), "wrong fields"),
        (encode("report", run="r", peer=True, ticket="t", label=1), "bad value"),
        (encode("report", run="r", peer=-1, ticket="t", label=1), "bad value"),
        (encode("report", run="r", peer=0, ticket="", label=1), "bad value"),
        (encode("report", run="r", peer=0, ticket="\ud800", label=1), "not JSON"),
        (encode("report", run="r", peer=0, ticket="t\x1b", label=1), "bad value"),
    ],
)
def test_each_refusal_has_its_reason(body: bytes, reason: str):
    hearer = learner()
    hearer.hear(body, survivors=EVERYONE)
    assert hearer.roster.refused == {reason: 1}
    assert hearer.heard == set()


@given(st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
def test_no_bytes_crash_the_learner(body: bytes):
    hearer = learner()
    hearer.hear(body, survivors=EVERYONE)
    assert hearer.reports == {}
    assert sum(hearer.roster.refused.values()) == 1


@given(st.sampled_from(sorted(FIELDS)), st.data())
def test_no_values_of_the_right_fields_crash_a_reader(kind: str, data):
    fields = {name: data.draw(JSON) for name in FIELDS[kind]}
    try:
        message = read(encode(kind, run="r", **fields), run="r", kinds=(kind,))
    except Refused:
        return
    assert set(message) == {"kind", "run", *fields}


def test_a_peer_keeps_no_raw_label_and_shows_none():
    # alpha = 1/2 and many peers: what they hold is a fair coin whatever the label. 0.5 +- 6 * 0.5 / sqrt(2000): 2e-9.
    terms = Terms(**{**vars(TERMS), "alpha": 0.5})
    peers = [Peer(1, name=k, ticket="t", terms=terms) for k in range(2000)]
    held = [{name: getattr(peer, name) for name in Peer.__slots__} for peer in peers]
    assert abs(sum(part["_noisy"] for part in held) / 2000 - 0.5) < 6 * 0.5 / 2000**0.5
    assert {name for name in held[0] if isinstance(held[0][name], int)} == {"_noisy", "_takes_part", "name"}
    assert repr(peers[7]) == "<Peer 7: label hidden>"
    assert repr(Seat(name=7, ticket="secret", label=1)) == "Seat(name=7)"
    with pytest.raises(LabelDPError, match="does not pickle"):
        pickle.dumps(peers[0])


@pytest.mark.parametrize("label", [2, -1, True, "1", 0.5])
def test_a_peer_has_a_binary_label(label):
    with pytest.raises(LabelDPError, match="Peer: `label` must be 0 or 1, got another value") as caught:
        Peer(label, name=0, ticket="t", terms=TERMS)
    assert str(label) not in str(caught.value).replace("0 or 1", "")


def test_tickets_do_not_show():
    roster = Roster.of([0, 0])
    assert roster.tickets[0] not in repr(roster)
    assert len(set(roster.tickets.values())) == 2


@pytest.mark.parametrize("name", ["run", "rendezvous", "learner", "host"])
@pytest.mark.parametrize("text", ["tcp://\ud800:1", "tcp://a\x00:1", "tcp://\u00fc:1", "t" * 300])
def test_terms_have_addresses_that_can_be_sent(name, text):
    with pytest.raises(LabelDPError, match=f"Terms: `{name}` must be at most 256 characters of ASCII"):
        Terms(**{**vars(TERMS), name: text})


def test_the_longest_list_fits_the_bound():
    """Names of 19 digits and addresses of 256 characters, each of which JSON escapes: the worst list there is."""
    members = [[(1 << 62) - 1, '"' * 256]] * 50
    assert len(encode("start", run="r" * 256, members=members)) <= Terms(**{**vars(TERMS), "most_peers": 50}).longest
