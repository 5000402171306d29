"""Guarantees as values: what they say, how they compose, and that a file gives the same promise back."""

import dataclasses
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labeldp.errors import LabelDPError, PrivacyError
from labeldp.guarantee import SEEDED, Guarantee, Trust, Unit, did_not_see, format_up

E = math.e
EXAMPLES = [
    Guarantee.pure(1.0),
    Guarantee.pure(math.inf),
    Guarantee.pure(0.0),
    Guarantee.bounded_range(0.5),
    Guarantee.zcdp(0.1, trust=Trust.CURATOR, slack=1e-9),
    Guarantee.rdp([2.0, 4.0], [0.1, math.inf]),
    Guarantee.gaussian(sigma=2.0, sensitivity=1.0, trust=Trust.CURATOR).assuming("features are clipped to norm 1"),
    Guarantee.profile([0.0, 1.0], [(E - 1) / (E + 1), 0.0], trust=Trust.PEERS).named("peers"),
]
guarantees = st.sampled_from(EXAMPLES)


def test_the_first_call():
    promise = Guarantee.pure(1.0)
    assert promise.epsilon() == 1.0
    assert promise.epsilon(delta=1e-5) < 1.0
    assert promise.delta(0.5) == pytest.approx((E - math.exp(0.5)) / (E + 1), rel=1e-14)  # the formula, rounded up
    assert promise.unit == "label"
    assert promise.unit is Unit.LABEL
    assert promise.trust == Trust.NO_ONE
    assert str(promise).splitlines() == [
        "epsilon = 1 at delta = 0 (pure), one label replaced; trusts no one",
        "  whoever holds the raw labels has seen them: the promise is about what was released",
    ]


@pytest.mark.parametrize(
    ("guarantee", "text"),
    [
        (Guarantee.pure(math.inf), "epsilon = inf at delta = 1e-05 (pure), one label replaced; trusts no one"),
        (
            Guarantee.zcdp(0.5, unit=Unit.RECORD_REPLACE, trust=Trust.CURATOR | Trust.PEERS),
            # 4.7284: dp-accounting's conversion of rho = 0.5 at 1e-5, in tests/loss/test_renyi.py
            "epsilon = 4.72839 at delta = 1e-05 (zCDP), one record replaced; trusts a curator and her peers",
        ),
        (
            Guarantee.pure(0.1, unit=Unit.RECORD_ADD_REMOVE).times(3),
            "epsilon = 0.300001 at delta = 0 (pure), one record added or removed; trusts no one",  # 3 * 0.1 > 0.3, rounded up
        ),
        (
            Guarantee.pure(2.0, trust=Trust.PEERS),
            "epsilon = 2 at delta = 0 (pure), one label replaced; trusts her peers",
        ),
    ],
)
def test_text_shows_cost_unit_and_trust(guarantee, text):
    assert guarantee.headline == str(guarantee).splitlines()[0] == text


def test_text_shows_all_that_it_stands_on():
    promise = Guarantee.pure(1.0, trust=Trust.CURATOR, assumptions=(SEEDED, *did_not_see("prior")))
    assert str(promise).splitlines()[1:] == [
        "  assumes: no one knows or can guess the seed from which the noise was made; the release is not private otherwise",
        "  assumes: the prior did not see these labels",
    ]
    assert promise.seeded
    assert promise.then(Guarantee.pure(1.0)).seeded
    assert Guarantee.from_json(promise.to_json()).seeded
    assert not Guarantee.pure(1.0).seeded


def test_text_rounds_up():
    assert format_up(0.1) == "0.1"  # as it was asked for
    assert float(format_up(1 / 3)) > 1 / 3
    assert format_up(0.0) == "0"


@settings(max_examples=20)  # each composes and prints four guarantees
@given(guarantees, guarantees, guarantees)
def test_one_normal_form(a, b, c):
    assert a.then(b) == b.then(a)
    assert a.then(b).then(c) == a.then(b.then(c)) == Guarantee.in_sequence([a, b, c])
    assert a.beside(b) == b.beside(a)
    assert a.then(a).then(a) == a.times(3) == a.times(2).then(a)
    for whole in (a, a.then(b), a.beside(b.then(c)), a.times(5).named("five")):
        text = json.dumps(whole.to_json(), allow_nan=False)
        again = Guarantee.from_json(json.loads(text))
        assert again == whole
        assert again.to_json() == whole.to_json()
        assert hash(again) == hash(whole)
        assert str(again) == str(whole)


def test_numbers_are_the_same_after_a_replay():
    whole = Guarantee.pure(0.3).times(20).then(Guarantee.gaussian(sigma=3.0, sensitivity=1.4))
    again = Guarantee.from_json(json.loads(json.dumps(whole.to_json())))
    assert again.epsilon(1e-6) == whole.epsilon(1e-6)
    assert again.delta(1.0) == whole.delta(1.0)


def test_units_do_not_mix():
    label, record = Guarantee.pure(1.0), Guarantee.pure(1.0, unit=Unit.RECORD_REPLACE)
    for compose in (label.then, label.beside):
        with pytest.raises(PrivacyError, match=r"must be the same in a composition, got label and record_replace\."):
            compose(record)


def test_trust_and_assumptions_unite():
    whole = EXAMPLES[6].then(EXAMPLES[7]).assuming("a second one").assuming("a second one")
    assert whole.trust == Trust.CURATOR | Trust.PEERS
    assert whole.trust.words == "a curator and her peers"
    assert whole.assumptions == ("a second one", "features are clipped to norm 1")
    assert Guarantee.pure(1.0).trusting(Trust.CURATOR).trust == Trust.CURATOR


def test_parts_are_lines_of_a_budget():
    histogram = Guarantee.pure(0.25, trust=Trust.CURATOR).named("histogram")
    response = Guarantee.pure(0.75).named("response")
    whole = histogram.then(response)
    assert [name for name, _ in whole.parts] == ["histogram", "response"]
    assert whole.parts[0][1] == histogram
    assert [name for name, _ in whole.then(Guarantee.zcdp(0.1)).parts] == ["histogram", "response", "zCDP"]
    assert [name for name, _ in whole.named("priors").then(response).parts] == ["priors", "response"]
    assert [name for name, _ in response.times(4).parts] == ["4 x response"]
    assert whole.epsilon() == 1.0
    assert Guarantee.from_json(whole.to_json()).parts == whole.parts


def test_parallel_takes_the_worst_and_sequence_the_sum():
    small, large = Guarantee.pure(0.5), Guarantee.pure(2.0)
    assert small.beside(large) == large
    assert small.then(large).epsilon() == 2.5
    assert large.times(0).epsilon() == 0.0
    assert Guarantee.in_parallel([small, large, small]) == large


def test_sensitivity_over_sigma_rounds_up():
    promise = Guarantee.gaussian(sigma=3.0, sensitivity=1.0)
    assert promise.loss.mu >= 1 / 3
    assert promise.loss.mu * 3 >= 1
    assert Guarantee.gaussian(sigma=math.inf, sensitivity=1.0).epsilon() == 0.0
    assert Guarantee.gaussian(sigma=1.0, sensitivity=0.0).epsilon() == 0.0


def test_it_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Guarantee.pure(1.0).trust = Trust.CURATOR


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: Guarantee.pure(-1.0), "Guarantee.pure: `epsilon` must be >= 0, got -1.0"),
        (lambda: Guarantee.pure(math.nan), "`epsilon` must be >= 0"),
        (lambda: Guarantee.pure(10**400), "`epsilon` must be a number that a float holds"),
        (lambda: Guarantee.zcdp(0.1, slack=1.0), r"`slack` must be in \[0, 1\)"),
        (lambda: Guarantee.gaussian(sigma=0.0, sensitivity=1.0), "`sigma` must be finite and > 0"),
        (lambda: Guarantee.pure(1.0, unit="lable"), "Did you mean `label`?"),  # codespell:ignore lable
        (lambda: Guarantee.pure(1.0).epsilon(1.0), r"`delta` must be in \[0, 1\)"),
        (lambda: Guarantee.pure(1.0).delta(-0.1), "`epsilon` must be >= 0"),
        (lambda: Guarantee.pure(1.0).times(1.5), "`count` must be an integer >= 0"),
        (lambda: Guarantee.in_sequence([]), "at least one"),
        (lambda: Guarantee.from_json({"loss": {"kind": "pure"}}), "`data` must be an object"),
        (lambda: Guarantee.from_json([]), "`data` must be an object"),
        (lambda: Guarantee.from_json('{"loss": 1}'), "text is parsed first: json.loads"),
        (lambda: Guarantee.from_json({"epsilon": 1}), "an object with loss, unit, trust, .*Guarantee.to_json"),
        (lambda: Guarantee.from_json(broken(trust=7)), "`trust` must be a list of texts"),
        (lambda: Guarantee.from_json(broken(assumptions=7)), "`assumptions` must be a list of texts"),
        (lambda: Guarantee.from_json(broken(name=7)), "`name` must be a text"),
        (lambda: Guarantee.from_json(broken(parts=7)), "`parts` must be a list of objects with name and guarantee"),
        (lambda: Guarantee.from_json(broken(parts=[{"name": "a"}])), "`parts` must be a list of objects"),
        (lambda: Guarantee.from_json(broken(parts=[{"name": 7, "guarantee": broken()}])), "with name and guarantee"),
        (lambda: Guarantee.from_json(broken(loss={"kind": "pur", "epsilon": 1})), "Did you mean `pure`?"),
        (lambda: Guarantee.from_json(broken(loss={"kind": "pure", "eps": 1})), "fields of a pure loss"),
        (lambda: Guarantee.from_json(broken(loss={"kind": "pure", "epsilon": "1"})), "must be a number"),
        (lambda: Guarantee.from_json(broken(trust=["curater"])), "Did you mean `curator`?"),
        (lambda: Guarantee.from_json(broken(unit="user")), "neighbouring relation"),
    ],
)
def test_errors_name_the_argument_and_the_fix(call, says):
    with pytest.raises(LabelDPError, match=says.replace("?", r"\?")):
        call()


def test_minus_zero_is_zero():
    assert str(Guarantee.pure(-0.0).epsilon()) == "0.0"


def broken(**changes):
    return {**Guarantee.pure(1.0).to_json(), **changes}
