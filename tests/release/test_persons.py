"""Persons: ids, plans and releases, with every person's neighbours enumerated on small cases."""

import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labeldp import (
    ClusterRR,
    InformativeResponse,
    LabelCounts,
    LabelDPError,
    LabelSums,
    Ledger,
    OptimalResponse,
    Persons,
    PrivacyError,
    RandomizedResponse,
    RRTopK,
    RRWithPrior,
    SensitiveLabels,
    UnbiasedResponse,
    Unit,
    load_release,
    measure,
    privatize,
)
from labeldp.accounting import AccountName
from labeldp.errors import AccountError, AccountWarning, BudgetError
from labeldp.mechanisms import most_information
from labeldp.release import kernels
from labeldp.release.measurement import choose_noise
from labeldp.release.persons import (
    WAYS,
    best_answers,
    best_cap,
    check_apart,
    choice,
    choose_rows,
    compare_ways,
    gather_rows,
    information_of,
    pick_rows,
    plan_answers,
)
from labeldp.release.persons.choice import SPREAD
from labeldp.release.queries import Sensitivity
from labeldp.release.vectors import VectorQuery, measure_vector

OWNERS = ["ann", "bob", "ann", "cyd", "ann", "bob"]
PRIOR = np.array([0.6, 0.3, 0.1])
MECHANISMS = [
    RandomizedResponse(1.2, n_classes=3),
    InformativeResponse(1.2, n_classes=3),
    InformativeResponse(1.2, n_classes=5),
    RRWithPrior(1.2),
    RRTopK(1.2, k=2),
    OptimalResponse(1.2),
    UnbiasedResponse(1.2, bounds=(0, 2), grid=3, outputs=4),
]


def prior_of(mechanism):
    return PRIOR if isinstance(mechanism, (RRWithPrior, RRTopK, OptimalResponse)) else None


def worst_ratio(matrices):
    """The largest log-ratio between the answers of two vectors of labels, over all of them and all answers."""
    worst = 0.0
    n_classes = matrices[0].shape[0]
    answers = [range(matrix.shape[1]) for matrix in matrices]
    for one, other in itertools.product(itertools.product(range(n_classes), repeat=len(matrices)), repeat=2):
        for answer in itertools.product(*answers):
            up = math.prod(m[y, o] for m, y, o in zip(matrices, one, answer, strict=True))
            down = math.prod(m[y, o] for m, y, o in zip(matrices, other, answer, strict=True))
            if up > 0:
                worst = max(worst, math.inf if down == 0 else math.log(up / down))
    return worst


def channels_of(plan, mechanism, n_classes):
    """The matrix of each answered row, as the door asks the mechanism for it."""
    found = {}
    for epsilon, rows in plan.parts():
        size = None if mechanism.takes_numbers else n_classes
        channel = mechanism.with_epsilon(epsilon).channel(prior_of(mechanism), n_classes=size)
        channel = channel.place(0, plan.n_rows)
        for row in rows.tolist():
            found[row] = channel.take(np.array([row])).matrix(0)
    return found


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mechanism", MECHANISMS, ids=repr)
def test_no_persons_labels_cost_more_than_epsilon(mechanism, way):
    n_classes = getattr(mechanism, "n_classes", None) or 3
    persons = Persons.of(OWNERS)
    plan = plan_answers(persons, mechanism, way=way, n_classes=n_classes, prior=prior_of(mechanism))
    matrices = channels_of(plan, mechanism, n_classes)
    worst = 0.0
    for person in range(persons.n_persons):
        own = [matrices[row] for row in plan.rows.tolist() if persons.codes[row] == person]
        if own and n_classes ** len(own) <= 30:  # one to three rows of three classes
            worst = max(worst, worst_ratio(own))
    # Matrices are rounded to floats: log-ratios err by some ulps.
    assert worst <= plan.person_epsilon() * (1 + 1e-12)
    assert plan.person_epsilon() <= 1.2
    if way != "group" and n_classes == 3 and not isinstance(mechanism, OptimalResponse):
        assert worst >= 1.2 * (1 - 1e-9)  # and nothing is given away


def test_a_plan_that_forgets_a_second_row_is_caught():
    """The broken twin: every row at epsilon, as if each were a person of its own."""
    mechanism, persons = RandomizedResponse(1.2, n_classes=3), Persons.of(OWNERS)
    blind = plan_answers(Persons.of(range(6)), mechanism)
    matrices = channels_of(blind, mechanism, 3)
    own = [matrices[row] for row in range(6) if persons.codes[row] == 0]
    assert worst_ratio(own) > 1.2 * 2.9
    told = type(blind)(**{**vars(blind), "owners": persons.codes, "n_persons": persons.n_persons})
    assert told.person_epsilon() >= 3.6 - 1e-12
    with pytest.raises(PrivacyError, match=r"3\.5\d+|3\.6"):
        told.promise_for(mechanism.guarantee)


@settings(max_examples=60)
@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=60),
    st.floats(0.01, 20.0),
    st.sampled_from(WAYS),
    st.integers(2, 6),
)
def test_sums_of_epsilons_are_exact_and_within_epsilon(owners, epsilon, way, n_classes):
    persons = Persons.of(owners)
    plan = plan_answers(persons, InformativeResponse(epsilon, n_classes=n_classes), way=way)
    sums = [Fraction(0)] * persons.n_persons
    for row, share in zip(plan.rows.tolist(), plan.share.tolist(), strict=True):
        sums[persons.codes[row]] += Fraction(plan.epsilons[share])
    assert max(sums) <= Fraction(epsilon)
    assert Fraction(plan.person_epsilon()) >= max(sums)
    assert plan.person_epsilon() <= epsilon
    assert np.all(np.diff(plan.rows) > 0)
    asked = np.bincount(persons.codes[plan.rows], minlength=persons.n_persons)
    assert (
        np.all(asked == persons.counts)
        if way in ("shares", "group")
        else np.all((asked >= 1) & (asked <= persons.counts))
    )


def test_one_answer_tells_most_of_what_a_person_may_tell():
    persons = Persons.of(np.repeat(np.arange(50), np.arange(1, 51) % 9 + 1))
    for n_classes in (2, 3):
        for epsilon in (0.5, 1.0, 2.0):
            mechanism = InformativeResponse(epsilon, n_classes=n_classes)
            told = compare_ways(persons, mechanism)
            assert told["one"] >= 0.65 * most_information(epsilon)
            assert told["one"] <= most_information(epsilon) * (1 + 1e-12)
            assert told["one"] > 1.5 * told["shares"] > 1.5 * told["group"]


def test_the_number_of_answers_maximises_information():
    for n_classes in (2, 4, 10):
        information = information_of(InformativeResponse(1.0, n_classes=n_classes))
        for epsilon in (0.5, 1.0, 3.0, 4.0, 6.0, 9.0, 12.0):
            told = [c * information(epsilon / c) for c in range(1, 21)]
            assert best_answers(epsilon, information, most=20) == int(np.argmax(told)) + 1
    assert best_answers(math.inf, information, most=7) == 7
    assert best_answers(0.0, information, most=7) == 1


def test_rows_are_chosen_by_score_and_then_by_public_chance():
    persons = Persons.of(np.arange(3000) % 1000)
    score = np.zeros(3000)
    score[1000:2000] = 1.0
    plan = plan_answers(persons, RandomizedResponse(1.0, n_classes=2), score=score)
    assert plan.rows.tolist() == list(range(1000, 2000))
    chance = plan_answers(persons, RandomizedResponse(1.0, n_classes=2)).rows
    assert chance.tolist() == plan_answers(persons, InformativeResponse(0.3, n_classes=2)).rows.tolist()
    # 1000 choices of one in three: each third is chosen 333 times, give or take 15; eight of those has probability 1e-14.
    assert np.all(np.abs(np.bincount(chance // 1000, minlength=3) - 333) < 120)


@pytest.mark.parametrize("most", [1, 2, 5, None])
def test_pieces_join_to_the_whole_in_any_order(most):
    rng = np.random.default_rng(3)
    ids = rng.integers(0, 40, 300)
    score = rng.integers(0, 3, 300)
    whole = gather_rows(Persons.of(ids), most=most, score=score)
    pieces = [
        gather_rows(Persons.of(ids[low : low + 60]), most=most, score=score[low : low + 60], first=low)
        for low in range(0, 300, 60)
    ]
    for order in ([0, 1, 2, 3, 4], [4, 2, 0, 1, 3]):
        joined = pieces[order[0]]
        for place in order[1:]:
            joined = joined.join(pieces[place])
        for way in WAYS:
            if most is None and way in ("one", "common"):
                continue
            one, two = (x.plan(way=way, epsilon=1.0, most=most or 40) for x in (whole, joined))
            assert (one.digest, one.person_epsilon()) == (two.digest, two.person_epsilon())


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ([1, None, 2], "1 missing"),
        (np.ma.array([7, 7, 8], mask=[False, True, False]), "1 missing"),
        ([{"ill": 1}, {"ill": 0}], r"got struct\."),  # a name of a field may be a label
        (pa.table({"who": [1, 2]}), "got a Table. Pass its column of ids"),
        ([1.0, float("nan")], "missing"),
        (np.array([1, np.nan], np.float16), "missing"),
        (["a", None], "missing"),
        (["a", ""], "missing"),
        ([1, "1"], "one type"),
        (["1", 1.0], "one type"),
        (np.array(["a", 1], dtype=object), "one type"),
        (["ann", "ann "], "spaces"),
        ([0.5, 1.0], "fractions"),
        ([True, False], "bool"),
        (np.array(["2020-01-01"], dtype="datetime64[D]"), "text or whole"),
        (np.zeros((2, 2)), "shape"),
        (np.array([2**63], np.uint64), "2\\^63"),
        (pd.Series([1, pd.NA], dtype="Int64"), "missing"),
    ],
)
def test_ids_that_could_hide_a_person_are_refused(ids, words):
    with pytest.raises(LabelDPError, match=words):
        Persons.of(ids)


def test_the_same_ids_in_any_container_are_the_same_persons():
    plain = Persons.of([3, 1, 3, 2])
    for other in (
        np.array([3, 1, 3, 2], np.uint8),
        np.array([3.0, 1.0, 3.0, 2.0], np.float32),
        np.array([3.0, 1.0, 3.0, 2.0], np.float16),
        pd.Series([3, 1, 3, 2], dtype="Int64"),
        pa.chunked_array([[3, 1], [3, 2]]),
        pa.array([3, 1, 3, 2]).dictionary_encode(),
        pd.Categorical([3, 1, 3, 2]),
        ["c", "a", "c", "b"],
    ):
        assert Persons.of(other).digest == plain.digest
    with pytest.raises(LabelDPError, match="4 for 5 rows"):
        Persons.of([3, 1, 3, 2], n_rows=5)
    assert plain.take([0, 2, 3]).codes.tolist() == [0, 0, 1]
    assert plain.take([0, 2, 3]).ids.to_pylist() == [3, 2]
    assert plain.rows_of(np.array([True, False, True])).tolist() == [0, 2, 3]


def test_a_person_with_a_million_rows_is_one_person():
    ids = np.zeros(1_000_001, np.int64)
    ids[-1] = 1
    persons = Persons.of(ids)
    plan = plan_answers(persons, RandomizedResponse(1.0, n_classes=2))
    assert len(plan.rows) == 2
    shares = plan_answers(persons, RandomizedResponse(1.0, n_classes=2), way="shares")
    assert len(shares.rows) == 1_000_001
    assert shares.person_epsilon() <= 1.0


# --------------------------------------------------------------------------------------------------------------- the door


def example(n_classes=3, n=400, seed=0):
    rng = np.random.default_rng(seed)
    return SensitiveLabels(rng.integers(0, n_classes, n), n_classes=n_classes), rng.integers(0, 60, n)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mechanism", MECHANISMS[:2] + MECHANISMS[3:6], ids=repr)
def test_answers_are_those_of_the_same_rows_of_a_release_of_all(mechanism, way):
    labels, ids = example()
    prior = prior_of(mechanism)
    release = privatize(labels, mechanism, prior=prior, persons=ids, persons_way=way, rng=5)
    plan = plan_answers(Persons.of(ids), mechanism, way=way, n_classes=3, prior=prior)
    assert release.guarantee.unit is Unit.PERSON
    assert release.guarantee.epsilon() == 1.2
    assert release.guarantee.for_labels().epsilon() == plan.label_epsilon >= release.channel.epsilon
    rows = np.arange(400) if release.rows is None else release.rows
    assert rows.tolist() == plan.rows.tolist()
    for epsilon, part in plan.parts():
        alone = privatize(labels, mechanism.with_epsilon(epsilon), prior=prior, rng=5)
        at = np.searchsorted(rows, part)
        one, other = release.take(at), alone.take(part)
        assert np.allclose(one.channel.likelihood(one.codes), other.channel.likelihood(other.codes), rtol=1e-12)


@pytest.mark.parametrize(
    ("mechanism", "prior"),
    [
        (InformativeResponse(1.0, n_classes=6), None),
        (InformativeResponse(12.0, n_classes=6), None),
        (InformativeResponse(12.0), np.array([0.3, 0.2, 0.2, 0.1, 0.1, 0.1])),
        (RandomizedResponse(9.0, n_classes=6), None),
        (RRWithPrior(1.0), np.array([0.3, 0.2, 0.2, 0.1, 0.1, 0.1])),
    ],
    ids=repr,
)
def test_a_release_of_persons_survives_the_disk(mechanism, prior, tmp_path):
    labels, ids = example(6)
    release = privatize(labels, mechanism, prior=prior, persons=ids, rng=1)
    release.save(tmp_path / "out")
    back = load_release(tmp_path / "out")
    assert (back.rows.tolist(), back.n_rows) == (release.rows.tolist(), 400)
    assert back.guarantee == release.guarantee
    assert back.guarantee.for_labels().epsilon() == release.guarantee.for_labels().epsilon()
    assert np.array_equal(back.codes, release.codes)
    assert np.allclose(back.channel.likelihood(back.codes), release.channel.likelihood(release.codes), rtol=0)
    part = back.take(np.arange(3, 9))
    assert (part.rows.tolist(), part.n_rows) == (release.rows[3:9].tolist(), 400)
    assert part.guarantee.unit is Unit.PERSON
    features = pa.table({"x": np.arange(400)})
    import dataclasses

    dataclasses.replace(release, label_column="y").save(tmp_path / "table", features=features)
    again = load_release(tmp_path / "table")
    assert again.rows.tolist() == release.rows.tolist()
    assert again.answered(features).column("x").to_pylist() == release.rows.tolist()


def test_numbers_of_persons_are_answered_once():
    rng = np.random.default_rng(0)
    labels, ids = SensitiveLabels(rng.uniform(0, 10, 300), bounds=(0, 10)), rng.integers(0, 50, 300)
    release = privatize(labels, UnbiasedResponse(1.0, bounds=(0, 10)), persons=ids, rng=2)
    assert len(release) == len(np.unique(ids))
    assert release.values.shape == (len(release),)
    assert release.guarantee.unit is Unit.PERSON


def test_what_cannot_answer_for_persons_is_refused_before_anything_is_charged(tmp_path):
    labels, ids = example()
    ledger = Ledger(tmp_path / "ledger.db")
    for arguments, words in [
        ({"mechanism": ClusterRR(1.0), "groups": np.zeros(400, int)}, "ask labels alone"),
        ({"mechanism": RandomizedResponse(1.0), "persons_way": "many"}, "persons_way"),
        ({"mechanism": RandomizedResponse(1.0), "persons_score": np.zeros(3)}, "persons_score"),
        ({"mechanism": RandomizedResponse(1.0), "persons_score": np.full(400, np.nan)}, "missing"),
    ]:
        with pytest.raises(LabelDPError, match=words):
            privatize(labels, persons=ids, ledger=ledger, **arguments)
    prior = np.random.default_rng(0).dirichlet(np.ones(3), 400)
    with pytest.raises(LabelDPError, match=r"several epsilons.*persons_way"):  # candidate sets have one epsilon
        privatize(labels, RRWithPrior(1.0), prior=prior, persons=ids, persons_way="shares", ledger=ledger)
    with pytest.raises(LabelDPError, match="399 for 400 rows"):
        privatize(labels, RandomizedResponse(1.0), persons=ids[:-1], ledger=ledger)
    with pytest.raises(LabelDPError, match="come with persons"):
        privatize(labels, RandomizedResponse(1.0), persons_way="shares", ledger=ledger)
    with pytest.raises(LabelDPError, match="come with persons"):
        measure(labels, LabelCounts(), epsilon=1.0, cap=2, ledger=ledger)
    assert not ledger.entries()


def test_a_channel_that_exceeds_its_share_is_refused():
    class Greedy(RandomizedResponse):
        def channel(self, prior=None, *, groups=None, n_classes=None):
            return RandomizedResponse(self.epsilon + 0.1).channel(prior, groups=groups, n_classes=n_classes)

    labels, ids = example()
    with pytest.raises(PrivacyError, match="claims"):
        privatize(labels, Greedy(1.0), persons=ids)


# ------------------------------------------------------------------------------------------------------------- the ledger


def test_a_persons_other_rows_are_charged_to_the_same_account(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db", budget=1.5)
    first = SensitiveLabels([0, 1, 1], n_classes=2, name="spring")
    privatize(first, RandomizedResponse(1.0), persons=["ann", "bob", "ann"], ledger=ledger)
    second = SensitiveLabels([0, 1], n_classes=2, name="autumn")
    # A name that the owner gives stands, as it does for rows; that it has the same persons is said.
    with pytest.raises(AccountWarning, match="account 'spring' has about 50"):
        privatize(second, RandomizedResponse(1.0), persons=["ann", "cyd"], ledger=ledger)
    with pytest.raises(AccountWarning, match="account 'spring'"):
        measure(second, LabelCounts(), epsilon=1.0, persons=["cyd", "bob"], ledger=ledger)
    privatize(second, RandomizedResponse(1.0), persons=["dan", "cyd"], ledger=ledger)
    # A name that nobody chose gives way to the account of these persons.
    third = SensitiveLabels([0, 1], n_classes=2, name=AccountName("labels"))
    with pytest.raises((AccountError, BudgetError), match="spring"):
        privatize(third, RandomizedResponse(1.0), persons=["ann", "eve"], ledger=ledger)
    with pytest.raises(BudgetError, match="budget"):
        privatize(first, RandomizedResponse(1.0), persons=["ann", "bob", "ann"], ledger=ledger)


def test_one_account_never_mixes_units(tmp_path):
    labels, ids = example()
    for first, second in [({}, {"persons": ids}), ({"persons": ids}, {})]:
        ledger = Ledger(tmp_path / f"{len(first)}.db")
        privatize(labels, RandomizedResponse(1.0), ledger=ledger, **first)
        with pytest.raises(PrivacyError, match="for_persons"):
            privatize(labels, RandomizedResponse(1.0), ledger=ledger, **second)


def test_a_class_that_one_person_alone_has_does_not_come_onto_the_list():
    labels, ids = ["no", "no", "rare", "rare", "yes", "yes"], ["a", "b", "c", "c", "a", "b"]
    with pytest.raises(LabelDPError, match="the owner of row 2 alone"):
        privatize(labels, RandomizedResponse(1.0), persons=ids)
    with pytest.raises(LabelDPError, match="the owner of row 2 alone"):
        measure(labels, LabelCounts(), epsilon=1.0, persons=ids)
    listed = SensitiveLabels(labels, classes=["no", "rare", "yes"])
    assert len(privatize(listed, RandomizedResponse(1.0), persons=ids)) == 3
    assert len(privatize(labels, RandomizedResponse(1.0), persons=["a", "b", "c", "d", "a", "b"])) == 4


def test_the_balance_of_a_ledger_does_not_grow_with_releases(tmp_path):
    labels, ids = example()
    ledger = Ledger(tmp_path / "ledger.db")
    sizes = []
    for number in range(12):
        epsilon = 0.1 + number / 100
        privatize(labels, RandomizedResponse(epsilon), persons=ids, persons_way="group", ledger=ledger)
        sizes.append(len(json.dumps(ledger.spent("labels").to_json())))
    assert ledger.spent("labels").unit is Unit.PERSON
    assert sizes[-1] < 2 * sizes[8]


def test_parts_that_share_a_person_are_not_side_by_side():
    persons = Persons.of(OWNERS)
    check_apart(persons, [[0, 2, 4], [1, 5], [3]])
    with pytest.raises(PrivacyError, match="2 such persons"):
        check_apart(persons, [[0, 1], [2, 3, 4, 5]])


# ------------------------------------------------------------------------------------------------------------- statistics


def neighbours(codes, mine, n_classes):
    """All vectors of labels that differ in one person's rows alone."""
    for labels in itertools.product(range(n_classes), repeat=len(mine)):
        other = codes.copy()
        other[mine] = labels
        yield other


QUERIES = [
    LabelCounts(),
    LabelCounts(groups=np.array([0, 0, 1, 1, 1, 0])),
    LabelSums(scores=[-1, 0, 2]),
    LabelSums(scores=[0, 1, 3], weights=np.array([3, 1, -2, 5, 1, 4])),
    LabelSums(scores=[0, 1, 3], weights=np.array([[3, 1], [0, 1], [-2, 2], [5, 0], [1, 1], [4, -4]])),
]


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("query", QUERIES, ids=lambda q: type(q).__name__)
def test_no_person_moves_a_statistic_further_than_stated(query, n_classes):
    if isinstance(query, LabelSums):
        query = LabelSums(scores=query.scores[:n_classes], weights=query.weights)
    persons = Persons.of(OWNERS)
    stated = query.person_sensitivity(persons, n_classes=n_classes)
    l1 = l2 = 0.0
    start = np.zeros(6, np.int64)
    for person in range(persons.n_persons):
        mine = np.flatnonzero(persons.codes == person)
        values = [query.exact(codes, n_classes=n_classes) for codes in neighbours(start, mine, n_classes)]
        for one, other in itertools.combinations(values, 2):
            l1, l2 = max(l1, float(np.abs(one - other).sum())), max(l2, float(np.sqrt(((one - other) ** 2).sum())))
    assert l1 <= stated.l1
    assert l2 <= stated.l2
    assert stated.l2 <= stated.l1 * (1 + 1e-12)
    if not (isinstance(query, LabelSums) and query.weights is not None):
        assert stated.l1 == l1  # tight where her rows share a cell
        assert stated.l2 == pytest.approx(l2, rel=1e-12)
    # The broken twin: a sensitivity to one label is exceeded.
    assert l1 > query.sensitivity(n_classes=n_classes).l1


def test_capped_counts_are_of_at_most_so_many_rows_each():
    labels, ids = example()
    persons = Persons.of(ids)
    counts = measure(labels, LabelCounts(), epsilon=1.0, persons=ids, cap=2, rng=0)
    assert np.bincount(persons.codes[counts.rows]).max() == 2
    assert counts.guarantee.unit is Unit.PERSON
    assert counts.noise == choose_noise(Sensitivity(4.0, 4.0), 1.0, 0.0).text
    exact = measure(labels, LabelCounts(), epsilon=math.inf, persons=ids, cap=2)
    assert exact.value.sum() == len(counts.rows)
    gauss = measure(labels, LabelCounts(), epsilon=1.0, delta=1e-6, persons=ids, cap=1, rng=0)
    assert gauss.guarantee.epsilon(1e-6) <= 1.0
    weights = np.arange(400) % 5
    heavy = measure(labels, LabelSums(scores=[0, 1, 2], weights=weights), epsilon=1.0, persons=ids, rng=0)
    most = int(persons.sums(weights).max()) * 2
    assert heavy.rows is None
    assert heavy.noise == choose_noise(Sensitivity(most, most), 1.0, 0.0).text


def test_the_cap_is_the_one_of_least_estimated_error():
    rng = np.random.default_rng(1)
    for epsilon in (0.05, 0.5, 2.0):
        for counts in (np.ones(500, int), rng.zipf(1.8, 4000).clip(max=300), np.full(2000, 30)):
            n = counts.sum()
            caps = np.arange(1, counts.max() + 1)
            counted = np.minimum(counts[None], caps[:, None]).sum(axis=1)
            error = 0.25 * (1 / counted - 1 / n) + 2 / epsilon**2 * (2.0 * caps) ** 2 / counted**2
            best = best_cap(counts, reach=2.0, epsilon=epsilon)
            assert error[best - 1] <= error.min() * (1 + 1e-9)


def test_a_vector_is_measured_for_the_sum_of_a_persons_reaches():
    features = np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 4.0], [1.0, 1.0]])

    class Sums(VectorQuery):
        def size(self, *, n_classes, n_examples):
            return 2

        def sensitivity(self, *, n_classes, n_examples):
            return 5.0

        def row_reach(self, *, n_classes, n_examples):
            return np.linalg.norm(features, axis=1)

        def exact(self, codes, *, n_classes):
            return codes.astype(float) @ features

    labels = SensitiveLabels([0, 1, 1, 0], n_classes=2)
    assert Sums().person_sensitivity(Persons.of([0, 1, 0, 2]), n_classes=2, n_examples=4) == pytest.approx(
        6.0, rel=1e-12
    )
    one = measure_vector(labels, Sums(), epsilon=1.0, delta=1e-6, persons=[0, 1, 0, 2], rng=0)
    alone = measure_vector(labels, Sums(), epsilon=1.0, delta=1e-6, rng=0)
    assert one.guarantee.unit is Unit.PERSON
    assert one.sigma / alone.sigma == pytest.approx(6 / 5, rel=1e-3)


def test_choosing_rows_keeps_each_person():
    persons = Persons.of(np.arange(100) % 7)
    rows = choose_rows(persons, 3)
    assert np.bincount(persons.codes[rows]).tolist() == [3] * 7


NEAR = np.random.default_rng(5).integers(0, 40, 150)


@pytest.mark.parametrize("first", [0, 7, 9218111209480312321 - 60])  # the last: a row whose public word is zero
@pytest.mark.parametrize(
    "ids",
    [
        NEAR,
        NEAR - 20,
        NEAR * 10**9,  # sorted together with their rows
        np.where(
            NEAR % 2, NEAR + np.iinfo(np.int64).min, np.iinfo(np.int64).max - NEAR
        ),  # too far apart for that: numbered first
        NEAR.astype(str),
        NEAR.astype(float),
        [3],
    ],
    ids=["near", "below zero", "far", "whole range", "text", "floats", "one row"],
)
def test_one_pass_over_the_ids_picks_the_rows_that_the_search_among_all_picks(ids, first):
    """`pick_rows` keeps a word of each person; the oracle keeps all rows, scores and words, and sorts."""
    persons = Persons.of(ids)
    oracle = np.sort(gather_rows(persons, most=None, first=first).keep(1).rows - first)
    assert pick_rows(persons, first=first).tolist() == oracle.tolist()
    plain = np.asarray(ids)
    seen = dict.fromkeys(plain.tolist())
    assert persons.codes.tolist() == [list(seen).index(one) for one in plain.tolist()]
    assert persons.ids.to_pylist() == list(seen)
    assert persons.take(slice(0, 9)).ids.to_pylist() == list(dict.fromkeys(plain.tolist()[:9]))


def dealt(kind):
    """Enough rows that they are dealt into several buckets; ids in ways that are hard on a table or a hash."""
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 30_000, 90_000)
    if kind == "near":
        return codes - 7
    if kind == "all but a few alike":
        return np.where(rng.random(len(codes)) < 0.9, 5, codes * 10**6)
    if kind == "another in each row":
        return rng.permutation(len(codes)) * 1_000_003
    if kind == "lowest bits alike":
        return codes << 24
    # Ids whose hashes all meet in one slot of one bucket: the inverse of the odd factor makes them.
    wide = 40
    inverse = pow(SPREAD, -1, 1 << wide)
    ids = (codes * inverse) % (1 << wide)
    return np.concatenate([ids, [0, (1 << wide) - 1]]).astype(np.int64)


@pytest.mark.parametrize(
    "kind", ["near", "all but a few alike", "another in each row", "lowest bits alike", "made to meet"]
)
def test_buckets_pick_the_rows_that_a_sort_picks(kind):
    persons = Persons.of(dealt(kind))
    for first in (0, 12_345):
        assert np.array_equal(pick_rows(persons, first=first), choose_rows(persons, 1, first=first))


def test_where_ids_meet_in_one_slot_their_rows_are_sorted(monkeypatch):
    """With no patience at all the search gives up at the first two that meet; the rows are the same."""
    persons = Persons.of(dealt("another in each row"))
    sorted_ones = []
    sort = kernels.mark_by_sort
    monkeypatch.setattr(kernels, "mark_by_sort", lambda *given: (sorted_ones.append(1), sort(*given)))
    assert np.array_equal(pick_rows(persons), choose_rows(persons, 1))
    assert not sorted_ones
    monkeypatch.setattr(choice, "MOST_TRIED", 0)
    assert np.array_equal(pick_rows(persons), choose_rows(persons, 1))
    assert sorted_ones == [1]


def test_ids_that_are_changed_later_do_not_change_who_owns_what():
    ids = np.array([1, 1, 2])
    persons = Persons.of(ids)
    part = persons.take(slice(0, 2))
    ids[:] = 5
    assert persons.n_persons == 2
    assert part.n_persons == 1
