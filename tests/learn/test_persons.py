"""The person as unit in learners: stages, rows, statistics and folds split nobody, and what a person spends is what was promised."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, KFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import labeldp
from labeldp import (
    LabelPrivateClassifier,
    LabelPrivateRegressor,
    Ledger,
    Persons,
    PrivacyError,
    RandomizedResponse,
    SensitiveLabels,
    Unit,
    privatize,
)
from labeldp.accounting import AccountName, protect_rows
from labeldp.errors import AccountError, LabelDPError
from labeldp.learn import PATE, MultiLabelPATE, PrivateGLM, PrivateSearchCV, SufficientStatistics, evaluate
from labeldp.learn.convex.moments import ClassMoments, NumberMoments
from labeldp.learn.convex.persons import count_directions, estimate_error, share_influence
from labeldp.learn.evaluation import count_persons
from labeldp.learn.metrics import Scores
from labeldp.learn.pate.teachers import deal_rows
from labeldp.learn.ratings import LabelPrivateRatings
from labeldp.learn.score_counts import Cells
from labeldp.priors import ClusterPrior, Prior, PriorTable
from labeldp.release.budget import open_account

CLASSES = (0, 1, 2)


@pytest.fixture(scope="module")
def problem():
    """1,000 rows or so of 400 persons, three classes, the numbers of rows with a tail."""
    rng = np.random.default_rng(0)
    ids = rng.permutation(np.repeat(np.arange(400), rng.zipf(2.0, 400).clip(max=9)))
    X = rng.normal(size=(len(ids), 3))
    y = (X @ rng.normal(size=(3, 3)) + rng.gumbel(size=(len(ids), 3))).argmax(axis=1)
    return X, y, ids


def learner(**settings):
    return LabelPrivateClassifier(**{"epsilon": 2.0, "classes": CLASSES, "random_state": 0, **settings})


WAYS = {
    "one stage": {"stages": 1},
    "two stages, rows by information": {"stages": (0.3, 0.7), "person_rows": "information"},
    "counts first": {"trust": "curator", "stages": 2, "prior": ClusterPrior(n_clusters=8)},
    "counts alone": {"trust": "curator", "stages": 0},
    "several rows each": {"stages": 2, "epsilon": 9.0},
    "labels, cross-fitted": {"mechanism": labeldp.RandomizedResponse(1.0), "correction": "crossfit"},
}


@pytest.mark.parametrize("way", WAYS)
def test_a_receiver_makes_the_owners_model_and_a_person_is_in_one_stage(problem, way):
    X, y, ids = problem
    pipe = make_pipeline(StandardScaler(), labeldp.learn.SoftmaxRegression())
    model = learner(estimator=pipe, **WAYS[way]).fit(X, y, persons=ids)
    release = model.release_
    assert (model.guarantee_.unit, model.guarantee_.epsilon()) == (Unit.PERSON, model.epsilon)
    assert "the assignment of rows to persons did not see these labels" in str(model.guarantee_)
    again = clone(model).fit_release(X, release, persons=ids)
    assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert again.stages_ == model.stages_
    assert again.guarantee_ == model.guarantee_
    if WAYS[way].get("stages") == 0:
        assert release.rows is None
        return
    stage = np.zeros(len(release), int) if release.stage is None else release.stage
    seen = {}
    for person, number in zip(ids[release.rows].tolist(), stage.tolist(), strict=True):
        assert seen.setdefault(person, number) == number
    assert set(seen) == set(ids.tolist())
    answers = np.bincount(ids[release.rows])
    assert answers.max() == (1 if model.epsilon < 3 else 3)


@settings(max_examples=10, deadline=None)
@given(data=st.data(), n_persons=st.integers(6, 30))
def test_stages_and_teachers_split_nobody(data, n_persons):
    counts = data.draw(st.lists(st.integers(1, 6), min_size=n_persons, max_size=n_persons))
    ids = np.random.default_rng(0).permutation(np.repeat(np.arange(n_persons), counts))
    seed = data.draw(st.integers(0, 10_000))
    owners = Persons.of(ids)
    parts = deal_rows(len(ids), n_teachers=3, split=seed, persons=owners)
    assert sorted(row for part in parts for row in part.tolist()) == list(range(len(ids)))
    assert sum(len(set(ids[part].tolist())) for part in parts) == n_persons
    model = LabelPrivateRegressor(epsilon=1.0, bounds=(0, 1), stages=(0.5, 0.3, 0.2), random_state=seed)
    release = model.fit(np.ones((len(ids), 1)), np.zeros(len(ids)), persons=ids).release_
    rows = np.arange(len(ids)) if release.rows is None else release.rows
    pairs = set(zip(ids[rows].tolist(), release.stage.tolist(), strict=True))
    assert len(pairs) == n_persons


def worst_ratio(release, ids, person):
    """The largest log-ratio that all labels of a person, replaced together, give to any of her answers: by enumeration."""
    rows = np.arange(len(ids)) if release.rows is None else release.rows
    hers = np.flatnonzero(ids[rows] == person)
    matrices = [release.channel.matrix(int(i)) for i in hers]
    worst = 0.0
    for one, other in itertools.product(itertools.product(range(release.n_classes), repeat=len(hers)), repeat=2):
        # Given the labels, answers of rows are independent: the worst answer is the worst of each row.
        worst = max(worst, sum(float(np.log(m[a] / m[b]).max()) for m, a, b in zip(matrices, one, other, strict=True)))
    return worst


def test_what_a_person_spends_is_found_by_enumeration_and_a_forgotten_row_is_caught():
    ids = np.array([0, 0, 0, 1, 1, 2, 3, 3, 3, 4])
    X, y = np.arange(10.0)[:, None], np.arange(10) % 2
    settings = {"epsilon": 7.0, "classes": [0, 1], "stages": 1, "random_state": 0}
    mechanism = labeldp.RandomizedResponse(1.0)
    model = LabelPrivateClassifier(mechanism=mechanism, **settings).fit(X, y, persons=ids)
    spent = [worst_ratio(model.release_, ids, person) for person in range(5)]
    assert len(model.release_) == 10  # at epsilon 7, three answers tell more than one
    # Logarithms of quotients of floats: the last digits are theirs.
    assert max(spent) <= 7.0 * (1 + 1e-12)
    assert max(spent) > 6.99
    broken = LabelPrivateClassifier(mechanism=mechanism, **settings).fit(X, y)  # forgets that rows are a person's
    assert max(worst_ratio(broken.release_, ids, person) for person in range(5)) > 20.0


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_sensitivity_of_moments_is_that_of_the_worst_person(n_classes):
    rng = np.random.default_rng(n_classes)
    ids = np.array([0, 1, 0, 2, 0, 1])
    persons = Persons.of(ids)
    rows = rng.integers(-5, 6, size=(6, 2))
    rows[[0, 2, 4]] = [[4, 1], [8, 2], [4, 1]]  # hers point the same way: the bound is reached
    queries = [ClassMoments(rows=rows), NumberMoments(scores=np.arange(n_classes) * 3, weights=rows)]
    for query in queries:
        claimed = query.person_sensitivity(persons, n_classes=n_classes)
        found, forgotten = np.zeros(2), query.sensitivity(n_classes=n_classes)
        for person in range(3):
            hers = np.flatnonzero(ids == person)
            labelings = list(itertools.product(range(n_classes), repeat=len(hers)))
            answers = []
            for labels in labelings:
                codes = np.zeros(6, np.int64)
                codes[hers] = labels
                answers.append(query.exact(codes, n_classes=n_classes).ravel())
            apart = np.array([one - other for one in answers for other in answers], float)
            found = np.maximum(found, [np.abs(apart).sum(axis=1).max(), np.linalg.norm(apart, axis=1).max()])
        assert claimed.l1 >= found[0]
        assert claimed.l2 >= found[1]
        assert_allclose([claimed.l1, claimed.l2], found, rtol=1e-12)  # tight, but for rounding up
        assert forgotten.l1 < 0.6 * found[0]  # the broken twin: one row at a time
    assert queries[0].take(np.array([1, 3])).rows.tolist() == rows[[1, 3]].tolist()


def test_weights_and_radius_are_the_best_there_are():
    rng = np.random.default_rng(0)
    for ratio in (0.5, 4.0, 60.0):
        persons = Persons.of(np.repeat(np.arange(6), [1, 1, 2, 3, 5, 9]))
        norms = rng.uniform(0.5, 2.0, len(persons))
        found = share_influence(norms, persons, ratio=ratio)
        influence = persons.sums(found.weights * norms)
        assert influence.max() <= found.radius * (1 + 1e-12)
        sums, squares = persons.sums(norms), persons.sums(norms**2)
        each = np.array([found.weights[persons.codes == p][0] for p in range(6)])
        ours = estimate_error(each, squares, radius=found.radius, ratio=ratio)
        # A grid search over R, and a general solver over all weights of persons: neither finds less.
        for radius in np.geomspace(sums.min(), sums.max(), 400):
            assert ours <= estimate_error(np.minimum(1, radius / sums), squares, radius=radius, ratio=ratio) * (
                1 + 1e-9
            )
        start = np.append(np.full(6, 0.1), 1.0)
        solved = minimize(
            lambda v, squares=squares, ratio=ratio: math.log(estimate_error(v[:6], squares, radius=v[6], ratio=ratio)),
            start,
            bounds=[(1e-6, 1.0)] * 6 + [(1e-3, 100.0)],
            constraints=[{"type": "ineq", "fun": lambda v, sums=sums: v[6] - v[:6] * sums}],
            method="SLSQP",
        )
        # The solver stops at 1e-6 of the logarithm.
        assert math.log(ours) <= solved.fun + 1e-4
    alone = share_influence(norms, persons, ratio=0.0)
    assert (alone.weights == 1).all()
    assert alone.radius == pytest.approx(sums.max())
    assert share_influence(np.zeros(3), Persons.of([1, 1, 2]), ratio=1.0).weights.tolist() == [1, 1, 1]
    assert count_directions(np.ones((5, 3))) == 1.0


@pytest.mark.parametrize(
    "model",
    [
        SufficientStatistics(epsilon=1.0, clip=2.0, classes=CLASSES, random_state=0),
        SufficientStatistics(epsilon=1.0, clip=2.0, head="softmax", delta=0.0, classes=CLASSES, random_state=0),
        PrivateGLM("multinomial", epsilon=1.0, classes=CLASSES, random_state=0),
        PrivateGLM("poisson", epsilon=1.0, bounds=(0, 2), random_state=0),
        PrivateGLM("gaussian", epsilon=1.0, bounds=(0, 2), statistic="groups", random_state=0),
    ],
    ids=lambda model: f"{type(model).__name__} {getattr(model, 'family', model.get_params().get('head'))}",
)
def test_statistics_are_released_for_persons(problem, model):
    X, y, ids = problem
    found = clone(model).fit(X, y, persons=ids)
    assert found.guarantee_.unit is Unit.PERSON
    assert found.guarantee_.epsilon(model.delta) <= 1.0
    if getattr(model, "statistic", "moments") == "moments":
        plain = clone(model).fit(X, y)
        assert plain.guarantee_.unit is Unit.LABEL
        most = np.bincount(ids).max()
        assert found.sensitivity_.l2 < most * plain.sensitivity_.l2 / 2  # far below group privacy
    # Persons of one row each: the promise is the same, and so is what it costs.
    first = np.unique(ids, return_index=True)[1]
    alone = clone(model).fit(X[first], y[first], persons=ids[first])
    assert alone.guarantee_.unit is Unit.PERSON


def test_weighted_moments_solve_the_weighted_problem(problem):
    """Without noise, rows of persons with weights give the model that scikit-learn's weighted ridge does."""
    from sklearn.linear_model import Ridge

    X, y, ids = problem
    model = SufficientStatistics(epsilon=math.inf, clip=10.0, l2=1.0, classes=CLASSES, fit_intercept=False)
    model.fit(X, y, persons=ids)
    assert (model.row_weights_ == 1).all()
    loud = SufficientStatistics(epsilon=1e5, clip=10.0, l2=1.0, classes=CLASSES, fit_intercept=False, random_state=0)
    weights = np.random.default_rng(0).uniform(0.1, 1.0, len(X))
    persons = Persons.of(np.arange(len(X)))
    with pytest.MonkeyPatch.context() as patch:  # weights of our own, to tell them from ones
        patch.setattr("labeldp.learn.convex.sufficient.weigh_rows", lambda *_, **__: weights)
        loud.fit(X, y, persons=persons)
    oracle = Ridge(alpha=1.0, fit_intercept=False).fit(X, np.eye(3)[y] - 1 / 3, sample_weight=weights)
    # Noise of epsilon 1e5 on sums of about 100, and a grid of 2^-20.
    assert_allclose(loud.coef_, oracle.coef_, atol=2e-3)


def test_counts_of_a_prior_are_capped_and_a_prior_that_forgets_persons_is_refused(problem, tmp_path):
    X, y, ids = problem
    persons = Persons.of(ids)
    labels = labeldp.SensitiveLabels(y, classes=CLASSES)
    key = labeldp.random.NoiseKey.from_seed(0)
    table = ClusterPrior(n_clusters=4, epsilon=0.5).table(X, labels, budget=1.0, key=key, persons=persons)
    assert (table.guarantee.unit, table.guarantee.epsilon()) == (Unit.PERSON, 0.5)

    class Forgetful(ClusterPrior):
        def table(self, X, labels, *, budget, key) -> PriorTable:
            return super().table(X, labels, budget=budget, key=key)

    class Careless(ClusterPrior):
        def table(self, X, labels, *, budget, key, persons=None) -> PriorTable:
            return super().table(X, labels, budget=budget, key=key)

    assert issubclass(Forgetful, Prior)
    ledger = Ledger(tmp_path / "ledger")
    with pytest.raises(PrivacyError, match="must take persons, got 'Forgetful'"):
        learner(prior=Forgetful(n_clusters=4), ledger=ledger).fit(X, y, persons=ids)
    assert not ledger.entries()
    with pytest.raises(PrivacyError, match="a part promises for `label`"):
        learner(prior=Careless(n_clusters=4)).fit(X, y, persons=ids)


BAD = {
    "too few": (lambda ids: ids[:-1], "one id for each row"),
    "missing": (lambda ids: np.where(ids == 3, np.nan, ids), "no missing ids"),
    "mixed": (lambda ids: [*ids[:-1].tolist(), "x"], "ids of one type"),
    "too many": (lambda ids: [*ids.tolist(), 1], "one id for each row"),
    "fractions": (lambda ids: ids + 0.5, "text or whole numbers"),
    "two columns": (lambda ids: np.c_[ids, ids], "one id for each row"),
    "spaces": (lambda ids: np.char.add(ids.astype(str), np.where(ids == 3, " ", "")), "no spaces"),
}


@pytest.mark.parametrize("family", ["gaussian", "binomial", "multinomial"])
def test_an_id_with_very_many_rows_has_no_more_say_than_others(family):
    """Half of all rows are one person's, 100,000 of them, with labels turned round: the model is that of the others."""
    rng = np.random.default_rng(0)
    many, others = 100_000, 100_000
    X = rng.normal(size=(many + others, 2))
    y = (X[:, 0] > 0).astype(int)
    y[:many] = 1 - y[:many]
    ids = np.concatenate([np.zeros(many, int), 1 + np.arange(others)])
    told = {"classes": (0, 1)} if family == "multinomial" else {"bounds": (0, 1)} if family == "gaussian" else {}
    model = PrivateGLM(family, epsilon=2.0, delta=1e-6, random_state=0, **told).fit(X, y, persons=ids)
    assert model.guarantee_.unit is Unit.PERSON
    assert model.guarantee_.epsilon(1e-6) <= 2.0
    right = model.predict(X[many:])
    right = right > 0.5 if family != "multinomial" else right
    assert np.mean(right == y[many:]) > 0.9


def test_answers_count_by_the_rows_that_they_stand_for(problem):
    """A receiver who knows the persons has the owner's weights; weights of one's own stand; without either all answers count alike."""
    X, y, ids = problem
    model = learner(stages=1).fit(X, y, persons=ids)
    release = model.release_
    rows = np.bincount(ids)[ids]
    by_hand = clone(model).fit_release(X, release, sample_weight=rows**0.25)
    assert_array_equal(by_hand.predict_proba(X), model.predict_proba(X))
    alike = clone(model).fit_release(X, release)
    assert np.abs(alike.predict_proba(X) - model.predict_proba(X)).max() > 1e-3
    ones = clone(model).fit(X, y, persons=ids, sample_weight=np.ones(len(ids)))
    assert_array_equal(ones.release_.codes, release.codes)
    # Weights of one and none differ in the order of sums alone, and the solver ends within 1e-5 of the gradient.
    np.testing.assert_allclose(ones.predict_proba(X), alike.predict_proba(X), atol=1e-3)
    plain = labeldp.privatize(y, labeldp.InformativeResponse(2.0, n_classes=3), rng=0)
    with pytest.raises(PrivacyError, match="be about persons where these are given"):
        clone(model).fit_release(X, plain, persons=ids)
    with pytest.raises(labeldp.LabelDPError, match="one id for each row"):
        clone(model).fit_release(X, release, persons=ids[:-1])


@pytest.mark.parametrize("case", BAD)
def test_bad_persons_are_refused_before_anything_is_charged(problem, tmp_path, case):
    X, y, ids = problem
    make, words = BAD[case]
    bad = make(ids)
    models = [
        learner(),
        SufficientStatistics(clip=1.0, classes=CLASSES),
        PrivateGLM("multinomial", classes=CLASSES),
        PrivateGLM("gaussian", bounds=(0, 2)),
        PrivateGLM("poisson", bounds=(0, 2), statistic="groups"),
        PrivateSearchCV(None, {"l2": [1.0]}, classes=CLASSES),
        LabelPrivateRegressor(bounds=(0, 2)),
    ]
    for number, model in enumerate(models):
        ledger = Ledger(tmp_path / f"{case}-{number}")
        with pytest.raises(labeldp.LabelDPError, match=words):
            model.set_params(ledger=ledger).fit(X, y, persons=bad)
        assert not ledger.entries()


def test_a_checkpoint_and_a_ledger_know_the_persons(problem, tmp_path):
    X, y, ids = problem
    ledger = Ledger(tmp_path / "ledger")
    model = learner(random_state=None, ledger=ledger, checkpoint=tmp_path / "run", stages=2).fit(X, y, persons=ids)
    assert [entry.guarantee.unit for entry in ledger.entries() if entry.guarantee.epsilon() > 0] == [Unit.PERSON]
    spent = len(ledger.entries())
    again = clone(model).fit(X, y, persons=ids)  # all of it is there
    assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert_array_equal(again.release_.rows, model.release_.rows)
    with pytest.raises(labeldp.LabelDPError, match="another"):
        clone(model).fit(X, y, persons=np.arange(len(ids)))
    with pytest.raises(labeldp.LabelDPError, match="another"):
        clone(model).fit(X, y)
    assert len(ledger.entries()) == spent
    with pytest.raises(PrivacyError):
        clone(model).set_params(checkpoint=None).fit(X, y)  # one account does not mix units
    assert len(ledger.entries()) == spent


def test_weights_of_zero_are_asked_last(problem):
    X, y, ids = problem
    weights = (np.random.default_rng(1).random(len(ids)) < 0.5).astype(float)
    able = np.bincount(ids, weights=weights) > 0
    for model in (learner(stages=2, person_rows="information"), LabelPrivateRegressor(bounds=(0, 2), random_state=0)):
        release = model.fit(X, y, persons=ids, sample_weight=weights).release_
        assert (weights[release.rows] > 0).sum() == able.sum()


def test_metadata_routing_and_pipelines_hand_persons_on(problem):
    X, y, ids = problem
    pipe = make_pipeline(StandardScaler(), learner())
    assert pipe.fit(X, y, labelprivateclassifier__persons=ids)[-1].guarantee_.unit is Unit.PERSON
    with config_context(enable_metadata_routing=True):
        routed = make_pipeline(StandardScaler(), learner().set_fit_request(persons=True))
        scored = cross_validate(
            routed,
            X,
            y,
            cv=GroupKFold(3).set_split_request(groups=True),
            params={"persons": ids, "groups": ids},
            scoring=lambda model, X, y: float((model.predict(X) == y).mean()),
            return_estimator=True,
            return_indices=True,
        )
    for model, train, test in zip(scored["estimator"], *scored["indices"].values(), strict=True):
        assert model[-1].guarantee_.unit is Unit.PERSON
        assert not set(ids[train]) & set(ids[test])


def test_a_search_splits_nobody(problem):
    X, y, ids = problem
    grid = {"l2": [1e-3, 1e-1]}
    found = PrivateSearchCV(None, grid, epsilon=9.0, cv=3, classes=CLASSES, random_state=0).fit(X, y, persons=ids)
    assert (found.guarantee_.unit, found.guarantee_.epsilon()) == (Unit.PERSON, 9.0)
    assert found.best_estimator_.guarantee_.unit is Unit.PERSON
    counted = PrivateSearchCV(
        SufficientStatistics(clip=2.0), {"head": ["ridge"]}, epsilon=1.0, delta=1e-5, by="noisy_count", cv=3
    )
    counted.set_params(classes=CLASSES, random_state=0)
    assert counted.fit(X, y, persons=ids).guarantee_.unit is Unit.PERSON
    with pytest.raises(PrivacyError, match="rows of one person in two of them"):
        clone(counted).set_params(cv=KFold(3)).fit(X, y, persons=ids)
    with pytest.raises(PrivacyError, match="must take persons"):
        clone(counted).set_params(estimator=labeldp.learn.LPRRSGD(clip=1.0), param_grid={}).fit(X, y, persons=ids)
    with pytest.raises(PrivacyError, match="rows of one person in two of them"):
        PrivateSearchCV(None, grid, epsilon=9.0, cv=KFold(3), classes=CLASSES, random_state=0).fit(X, y, persons=ids)
    plain = labeldp.privatize(y, labeldp.InformativeResponse(1.0, n_classes=3), rng=0)
    with pytest.raises(PrivacyError, match="be about persons where these are given"):
        PrivateSearchCV(None, grid).fit_release(X, plain, persons=ids)


def test_pate_gives_a_person_to_one_teacher_and_says_so(problem):
    X, y, ids = problem
    model = PATE(n_teachers=30, epsilon=8.0, n_answers=10, classes=CLASSES, random_state=0)
    assert clone(model).fit(X, y, X[:40]).guarantee_.unit is Unit.LABEL
    assert model.fit(X, y, X[:40], persons=ids).guarantee_.unit is Unit.PERSON
    several = MultiLabelPATE(n_teachers=30, epsilon=20.0, random_state=0, aggregation="pate")
    assert several.fit(X, np.eye(3, dtype=int)[y], X[:4], persons=ids).guarantee_.unit is Unit.PERSON
    for unit, persons in (("person", None), ("record_replace", ids)):
        with pytest.raises(PrivacyError, match="go with `persons`"):
            clone(model).set_params(unit=unit).fit(X, y, X[:40], persons=persons)
    with pytest.raises(labeldp.LabelDPError, match="n_teachers"):
        clone(model).fit(X, y, X[:40], persons=np.zeros(len(ids), int))


def test_ratings_say_what_they_promise_a_user():
    pairs = [(user, item) for user in range(4) for item in range(3 + user)]
    model = LabelPrivateRatings(epsilon=0.5, values=(1, 2, 3), random_state=0).fit(pairs, [2] * len(pairs))
    assert model.guarantee_.unit is Unit.LABEL
    assert model.user_guarantee_.unit is Unit.PERSON
    assert 3.0 <= model.user_guarantee_.epsilon() < 3.0 + 1e-12  # six ratings of one user, at parts of .5, rounded up


@pytest.mark.parametrize(("n_classes", "reach"), [(2, 1), (3, 2)])
def test_a_private_report_has_noise_for_all_rows_of_a_person_that_count(n_classes, reach):
    """By enumeration: all labels of one person replaced move the counts of the report by no more than the noise is for."""
    rng = np.random.default_rng(2)
    owners = np.repeat(np.arange(60), 1 + np.arange(60) % 4)
    chances = rng.dirichlet(np.ones(n_classes), len(owners))
    y = rng.integers(0, n_classes, len(owners))
    asked = {"classes": list(range(n_classes)), "epsilon": 1.0, "persons": owners}
    found = evaluate(chances, None, y, **asked, rng=0)
    assert found.guarantee.unit is Unit.PERSON
    assert found.guarantee.epsilon() == 1.0
    counted = count_persons(owners, len(owners), n_classes=n_classes, epsilon=1.0)
    assert found.n_rows == len(counted.persons)
    assert found.noise == f"discrete Laplace, rate {1 / (counted.most * reach):.6g}"
    rows = np.arange(len(owners)) if counted.rows is None else counted.rows
    scores = Scores(chances[rows], classes=tuple(range(n_classes)), detailed=True)
    query = Cells.choose(scores, epsilon=1.0, most=counted.most).query
    mine = np.flatnonzero(owners[rows] == 59)  # of those with most rows
    before, worst = query.exact(y[rows], n_classes=n_classes), 0
    for labels in itertools.product(range(n_classes), repeat=len(mine)):
        other = y[rows].copy()
        other[mine] = labels
        worst = max(worst, int(np.abs(query.exact(other, n_classes=n_classes) - before).sum()))
    assert 0 < worst <= counted.most * reach


def test_a_private_report_without_noise_is_that_of_the_rows_that_count():
    rng = np.random.default_rng(5)
    owners, y, guess = np.repeat(np.arange(40), 3), rng.integers(0, 2, 120), rng.random(120)
    open_report = evaluate(guess, None, y, classes=[0, 1], labels_are_public=True)
    found = evaluate(guess, None, y, classes=[0, 1], epsilon=math.inf, persons=owners)
    assert found.n_rows == 120
    assert found.accuracy.value == pytest.approx(open_report.accuracy.value)
    amounts = evaluate(guess, None, guess / 2, bounds=(0, 1), epsilon=1.0, persons=owners, rng=0)
    assert amounts.guarantee.unit is Unit.PERSON
    for wrong in ({"labels_are_public": True}, {}):
        labels = y if wrong else privatize(y, RandomizedResponse(1.0, n_classes=2))
        with pytest.raises(LabelDPError, match="come with labels that are protected"):
            evaluate(guess, None, labels, persons=owners, classes=[0, 1], **wrong)


def test_labels_whose_rows_a_ledger_knows_by_columns_are_charged_to_persons(tmp_path):
    """Whoever looked the rows up before did not know whose they are: the charge does."""
    ledger = Ledger(tmp_path / "spent.sqlite")
    name = open_account(ledger, "stays", lambda key: protect_rows([pa.table({"x": np.arange(9)})], key, label="ill"))
    labels = SensitiveLabels(np.arange(9) % 2, n_classes=2, name=name)
    privatize(labels, RandomizedResponse(1.0, n_classes=2), persons=np.arange(9) % 3, ledger=ledger)
    assert {rows.kind for rows in ledger.known_rows("stays")} == {"ids", "columns"}
    again = SensitiveLabels([0, 1], n_classes=2, name=AccountName("her other rows"))
    with pytest.raises(AccountError, match="stays"):
        privatize(again, RandomizedResponse(1.0, n_classes=2), persons=[2, 77], ledger=ledger)


@pytest.mark.parametrize("epsilon", [3.0, 3.9, 4.5, 5.0, 6.0])
def test_two_classes_are_learned_at_every_epsilon_where_rows_of_a_person_begin_to_be_asked_together(epsilon):
    """Where stages differ in how many rows they ask: from 3.9 to 5 the default learner was refused."""
    rng = np.random.default_rng(0)
    ids, X = np.repeat(np.arange(60), np.tile([1, 2, 3], 20)), rng.normal(size=(120, 2))
    model = labeldp.LabelPrivateClassifier(epsilon=epsilon, classes=(0, 1), random_state=0)
    model.fit(X, (X[:, 0] > 0).astype(int), persons=ids)
    assert model.guarantee_.epsilon() <= epsilon
    assert model.guarantee_.unit is Unit.PERSON
