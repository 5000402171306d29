"""The balance of a label set: what its releases add up to, in a text that stays short, and never too little."""

import json
import math

import pytest

from labeldp.accounting.balance import MOST_PARTS, Balance, digest_text, sum_up_all
from labeldp.errors import LabelDPError
from labeldp.guarantee import Guarantee, Trust
from labeldp.loss import Lump, compact, read_loss

DELTAS = (0.0, 1e-12, 1e-6, 1e-3, 0.1)
MIXED = [
    Guarantee.pure(0.25),
    Guarantee.bounded_range(0.5, trust=Trust.CURATOR),
    Guarantee.zcdp(0.01, slack=1e-9),
    Guarantee.gaussian(sigma=20.0, sensitivity=1.0),
    Guarantee.discrete_gaussian(variance=900.0, sensitivity=1.0),
    Guarantee.rdp([2.0, 8.0], [0.1, 0.4]),
    Guarantee.profile([0.0, 1.0], [0.2, 0.0]),
    Guarantee.zcdp(0.02).beside(Guarantee.pure(0.1)).assuming("split blindly"),
]


def test_few_different_losses_are_the_exact_composition():
    whole = sum_up_all(MIXED)
    assert (whole.releases, whole.spent) == (len(MIXED), Guarantee.in_sequence(MIXED))


@pytest.mark.parametrize("base", [0.001, 0.01, 0.1, 0.5])
def test_put_together_losses_cost_no_less_than_exactly_composed(base):
    """The oracle is the convolution of all parts; at delta = 0 the sums are the same rational number."""
    exact = Guarantee.in_sequence([Guarantee.pure(base * (1 + i / 50)) for i in range(12)]).loss
    short = compact(exact, most=4)
    assert isinstance(short, Lump)
    assert short.epsilon(0.0) == exact.epsilon(0.0)
    for delta in DELTAS[1:]:
        assert exact.epsilon(delta) <= short.epsilon(delta)
        assert delta > 1e-6 or short.epsilon(delta) <= 1.25 * exact.epsilon(delta)
    for epsilon in (0.0, base, 4 * base, 12 * base):
        assert exact.delta(epsilon) <= short.delta(epsilon)


def test_a_mixture_costs_no_less_put_together():
    exact = Guarantee.in_sequence(MIXED).loss
    short = compact(exact, most=1)
    assert len(short.to_json()["of"]) < len(exact.to_json()["of"])
    for delta in DELTAS:
        assert exact.epsilon(delta) <= short.epsilon(delta)
    again = read_loss(json.loads(json.dumps(short.to_json())))
    assert again == short


def test_hundreds_of_different_epsilons_stay_short_and_add_up():
    promises = [Guarantee.pure(0.01 + i * 1e-6) for i in range(300)]
    whole = sum_up_all(promises)
    assert len(whole.to_text()) < 100 * MOST_PARTS
    exact = math.fsum(promise.epsilon() for promise in promises)
    assert exact <= whole.spent.epsilon() <= exact * (1 + 2**-51)
    # One by one or after a pause on disk: the same text.
    assert Balance.from_text(sum_up_all(promises[:200]).to_text()).add(promises[200]) == sum_up_all(promises[:201])


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_what_fits_is_what_the_tightest_bound_says(delta):
    """The quick bounds only answer sooner: just below the exact total is refused, the total itself is not."""
    balance = sum_up_all([Guarantee.pure(0.01)] * 500 + [Guarantee.pure(0.02)] * 3)
    more = Guarantee.pure(0.015)
    exact = balance.spent.then(more).epsilon(delta)
    assert balance.limited_to((exact, delta)).admits(more)
    assert balance.limited_to((exact * 2, delta)).admits(more)
    assert not balance.limited_to((exact * (1 - 1e-12), delta)).admits(more)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "7",
        '{"limit":null,"releases":0}',
        '{"limit":null,"releases":-1,"spent":null}',
        '{"limit":[1],"releases":0,"spent":null}',
        '{"limit":[NaN,0],"releases":0,"spent":null}',
        '{"limit":null,"releases":1,"spent":{"loss":{"kind":"lump","epsilon":"1e9","rho":"1/1"}}}',
        "[" * 100_000,
    ],
)
def test_a_balance_of_another_make_is_refused(text):
    with pytest.raises(LabelDPError):
        Balance.from_text(text)


@pytest.mark.parametrize("text", ["1e999999999", "1/0", "-1/2", "1/" + "9" * 5000, 7, None])
def test_a_sum_that_is_no_short_fraction_is_refused_at_once(text):
    with pytest.raises(LabelDPError):
        read_loss({"kind": "lump", "epsilon": text, "rho": "1/2"})


def test_one_text_for_one_balance():
    one, other = sum_up_all(MIXED), sum_up_all(MIXED)
    assert digest_text(one.to_text()) == digest_text(other.to_text()) != digest_text(sum_up_all(MIXED[1:]).to_text())
