"""The default recipe, distilling, rounds, and the run that releases no label."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier

from labeldp import RRWithPrior, load_release
from labeldp.accounting import Ledger
from labeldp.channel import CandidateChannel
from labeldp.errors import LabelDPError
from labeldp.guarantee import Trust
from labeldp.learn import LabelPrivateClassifier, SoftmaxRegression, recipe
from labeldp.learn import stages as stage_loop
from labeldp.learn.stages import posteriors
from labeldp.priors import ClusterPrior, PublicPrior, UniformPrior

#: What a histogram of twelve clusters a class costs: 22 ln K 12 K / n.
FIRST = {(60_000, 10): 0.1013, (8000, 10): 0.760, (60_000, 20): 0.2636}


@pytest.mark.parametrize(
    ("epsilon", "n", "classes", "shares"),
    [
        (0.25, 60_000, 10, (0.25, 0.75)),  # 15,000 answers of at most 0.0078 nats, for ten classes
        (0.1, 60_000, 10, (1.0,)),
        (1.0, 60_000, 2, (1.0,)),  # a prior changes nothing
        (1.0, 2000, 10, (1.0,)),  # 500 answers of 0.12 nats
        (2.0, 2000, 10, (0.25, 0.75)),
        (2.0, 15_000, 150, (1.0,)),  # 3,750 answers of 0.47 nats, for 150 classes
        (3.0, 15_000, 150, (0.25, 0.75)),
        (0.0, 60_000, 10, (1.0,)),
        (math.inf, 60_000, 10, (1.0,)),
        (8.0, 3, 10, (1.0,)),
    ],
)
@pytest.mark.parametrize("trust", [None, "no one"])
def test_the_rule_without_a_curator(epsilon, n, classes, shares, trust):
    plan = recipe(epsilon, n_examples=n, n_classes=classes, trust=trust)
    assert plan.shares == shares
    assert plan.prior == UniformPrior()
    # Others are fitted on all rows at once.
    plan = recipe(epsilon, n_examples=n, n_classes=classes, trust=trust, estimator=RandomForestClassifier())
    assert plan.shares == (1.0,)


@pytest.mark.parametrize(("n", "classes"), FIRST)
@pytest.mark.parametrize("times", [0.5, 7.99])
def test_the_rule_with_a_curator(n, classes, times):
    first = FIRST[n, classes]
    # Answers say much by themselves from 3 on, and those of a linear model are pooled: from 1.5 on.
    for estimator, most in ((None, 1.49), (RandomForestClassifier(), 2.99)):
        epsilon = min(times * first, most)
        plan = recipe(epsilon, n_examples=n, n_classes=classes, trust="curator", estimator=estimator)
        assert plan.shares == ()
        assert isinstance(plan.prior, ClusterPrior)
        assert plan.prior.cost(epsilon, n_examples=n, n_classes=classes) == epsilon
    # With more to spend answers alone teach as much.
    sizes = {"n_examples": n, "n_classes": classes}
    more = min(8.01 * first, 1.51)
    assert recipe(more, **sizes, trust="curator") == recipe(more, **sizes, trust="no one")


@pytest.mark.parametrize(
    ("estimator", "epsilon", "shares"),
    [
        (None, 1.49, ()),
        (None, 1.51, (0.25, 0.75)),
        (RandomForestClassifier(), 2.99, ()),
        (RandomForestClassifier(), 3.01, (1.0,)),
    ],
)
def test_few_rows_are_answered_once_answers_say_much_by_themselves(estimator, epsilon, shares):
    """With 2,000 rows of ten classes a histogram would be worth its budget up to epsilon 24."""
    plan = recipe(epsilon, n_examples=2_000, n_classes=10, trust="curator", estimator=estimator)
    assert plan.shares == shares
    assert isinstance(plan.prior, ClusterPrior) == (not shares)


@pytest.mark.parametrize(("epsilon", "rows"), [(0.1, 2_000), (0.5, 2_000), (1.0, 2_000), (0.25, 8_000), (0.1, 60_000)])
def test_the_first_quarter_of_pooled_answers_always_pays(epsilon, rows):
    pytest.importorskip("torch")
    from labeldp.nn import NetClassifier

    sizes = {"n_examples": rows, "n_classes": 10, "trust": "no one"}
    assert recipe(epsilon, **sizes, estimator=NetClassifier("mlp")).shares == (0.25, 0.75)
    assert recipe(epsilon, **sizes, estimator=NetClassifier("small-cnn")).shares == (1.0,)


@pytest.mark.parametrize(("epsilon", "shares", "counted"), [(1.49, (), True), (1.51, (0.25, 0.75), False)])
def test_answers_that_are_pooled_need_no_curator_sooner(epsilon, shares, counted):
    pytest.importorskip("torch")
    from labeldp.nn import NetClassifier

    for rows in (2_000, 8_000):
        plan = recipe(epsilon, n_examples=rows, n_classes=10, trust="curator", estimator=NetClassifier("mlp"))
        assert plan.shares == shares
        assert isinstance(plan.prior, ClusterPrior) == counted


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_many_classes_are_not_counted(epsilon):
    sizes = {"n_examples": 60_000, "n_classes": 100}
    assert recipe(epsilon, **sizes, trust="curator") == recipe(epsilon, **sizes, trust="no one")


@pytest.mark.parametrize("epsilon", [0.0, math.inf, 1.0])
def test_where_nothing_can_be_counted_there_is_no_prior(epsilon):
    plan = recipe(epsilon, n_examples=60, n_classes=10, trust="curator")
    assert plan.prior == UniformPrior()
    assert plan.shares == (1.0,)


def test_what_is_not_auto_is_taken_as_it_is():
    mine = ClusterPrior(n_clusters=7)
    assert recipe(0.1, n_examples=600, n_classes=3, prior=mine).prior is mine
    assert recipe(0.1, n_examples=60_000, n_classes=3, stages=1).shares == (1.0,)
    assert recipe(1.0, n_examples=600, n_classes=3, stages=0, prior=mine).prior.whole_budget
    assert recipe(0.5, n_examples=60_000, n_classes=10, stages=2, trust="curator").prior.epsilon < 0.2
    assert recipe(4.0, n_examples=60_000, n_classes=10, stages=0, trust="curator").prior.whole_budget


@pytest.mark.parametrize("trust", ["no one", None, "curator"])
def test_whom_a_user_trusts_is_kept(problem, tmp_path, trust):
    """The guarantee says who is trusted; settings that would need more are refused before anything is charged."""
    ledger = Ledger(tmp_path / "budget.ledger", budget=10.0)
    told = {"trust": trust, "ledger": ledger, "classes": range(3)}
    model = LabelPrivateClassifier(random_state=0, **told).fit(problem.X, problem.y)
    assert model.guarantee_.trust == (Trust.CURATOR if trust == "curator" else Trust.NO_ONE)
    counted = LabelPrivateClassifier(prior=ClusterPrior(n_clusters=5), random_state=1, **told)
    spent = ledger.spent().epsilon()
    if trust == "no one":
        with pytest.raises(LabelDPError, match=r"`trust` must cover what .* got settings that trust a curator"):
            counted.fit(problem.X, problem.y)
        assert ledger.spent().epsilon() == spent
        with pytest.raises(LabelDPError, match="Give the public list `classes`"):  # else someone reads them off
            LabelPrivateClassifier(trust=trust, ledger=ledger, random_state=2).fit(problem.X, problem.y)
        assert ledger.spent().epsilon() == spent
    else:
        assert counted.fit(problem.X, problem.y).guarantee_.trust == Trust.CURATOR


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"stages": "many"}, "`stages` must be"),
        ({"prior": "none"}, "`prior` must be"),
        ({"trust": "everyone"}, "`trust` must be"),
        ({"stages": 0}, "`stages` must be 1 or more without a prior"),
        ({"stages": 0, "prior": ClusterPrior(n_clusters=5), "distil": False}, "`distil` must be true with stages=0"),
        ({"distil": "yes"}, "`distil` must be"),
        ({"rounds": -1}, "`rounds` must be an integer"),
        ({"rounds": "some"}, "`rounds` must be"),
        ({"stage_params": {"l2": 1}}, "`stage_params` must be a list of dicts"),
        ({"stage_params": [{"width": 1}]}, "`stage_params` must name parameters of the estimator, got 'width'"),
        ({"final_params": [1]}, "`final_params` must hold parameters"),
        ({"distil": True, "estimator": RandomForestClassifier(), "correction": "forward"}, "`correction` must be one"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_charged(problem, tmp_path, settings, message):
    ledger = Ledger(tmp_path / "budget.ledger", budget=10.0)
    with pytest.raises(LabelDPError, match=message):
        LabelPrivateClassifier(ledger=ledger, **settings).fit(problem.X, problem.y)
    assert ledger.spent() is None


@pytest.mark.parametrize(("epsilon", "alone"), [(0.2, True), (1.0, False)])
def test_auto_with_a_curator_learns_and_says_what_it_came_to(problem_of, door, epsilon, alone):
    """Counts alone are "auto"; counts and answers are there for who asks for a stage."""
    data = problem_of(6000, seed=3)
    model = LabelPrivateClassifier(epsilon=epsilon, trust="curator", stages="auto" if alone else 1, random_state=0).fit(
        data.X, data.y
    )
    assert model.score(data.X, data.y) > 0.9  # seeded; a linear model on all true labels has 0.96
    assert model.guarantee_.epsilon() <= math.nextafter(epsilon, math.inf)  # the sum of two parts, rounded up
    assert model.guarantee_.trust == Trust.CURATOR
    assert model.shares_ == (() if alone else (1.0,))
    assert (model.distil_, model.rounds_, model.correction_) == (True, 2 if alone else 6, "em")
    assert model.prior_.startswith("ClusterPrior(")
    # Each label is counted once, and drawn once unless the histogram has the whole budget.
    assert (door.measured, sum(door.drawn)) == ([6000], 0 if alone else 6000)


@pytest.mark.parametrize(("epsilon", "stages", "least"), [(0.1, 1, 0.3), (1.0, 2, 0.93)])
def test_auto_trusts_no_one(problem_of, door, epsilon, stages, least):
    data = problem_of(6000, seed=3)
    model = LabelPrivateClassifier(epsilon=epsilon, classes=range(3), random_state=0).fit(data.X, data.y)
    assert model.score(data.X, data.y) > least  # seeded; chance is 1/3
    assert (model.guarantee_.epsilon(), model.guarantee_.trust) == (epsilon, Trust.NO_ONE)
    assert len(model.stages_) == stages
    assert (model.distil_, model.rounds_, model.correction_) == (False, 0, "forward")
    assert (door.measured, sum(door.drawn)) == ([], 6000)


def test_without_stages_no_label_leaves_the_door(problem, door, tmp_path):
    prior = ClusterPrior(n_clusters=6, random_state=1)
    ledger = Ledger(tmp_path / "budget.ledger", budget=1.0)
    model = LabelPrivateClassifier(epsilon=0.7, stages=0, prior=prior, random_state=0, ledger=ledger)
    model.fit(problem.X, problem.y)
    assert (door.drawn, door.measured) == ([], [600])
    assert model.guarantee_.epsilon() == 0.7
    assert ledger.spent().epsilon() == 0.7
    assert model.stages_ == ()
    release = model.release_
    assert isinstance(release.channel, CandidateChannel)
    assert release.channel.epsilon == 0.0
    # What stands where labels would be is the histogram's best guess, a function of the released prior.
    assert np.array_equal(release.codes, release.prior.argmax(axis=1)[release.prior_index])
    assert model.score(problem.X, problem.y) > 0.85  # seeded


@pytest.mark.parametrize("estimator", [SoftmaxRegression(), RandomForestClassifier(n_estimators=10, random_state=0)])
@pytest.mark.parametrize(("epsilon", "trust"), [(0.25, "curator"), (8.0, "curator"), (8.0, "no one")])
def test_the_receiver_of_a_recipe_ends_with_the_owners_model(problem, tmp_path, estimator, epsilon, trust):
    settings = {"estimator": estimator}
    settings_of_owner = {"trust": trust, "classes": range(3), "epsilon": epsilon, "random_state": 0, **settings}
    owner = LabelPrivateClassifier(**settings_of_owner).fit(problem.X, problem.y)
    owner.release_.save(tmp_path / "release")
    receiver = LabelPrivateClassifier(**settings).fit_release(problem.X, load_release(tmp_path / "release"))
    assert np.array_equal(receiver.predict_proba(problem.X), owner.predict_proba(problem.X))
    assert receiver.stages_ == owner.stages_
    assert receiver.guarantee_ == owner.guarantee_


def test_a_receiver_of_no_labels_needs_no_settings(problem, tmp_path):
    owner = LabelPrivateClassifier(stages=0, prior=ClusterPrior(n_clusters=6), random_state=0)
    owner.fit(problem.X, problem.y).release_.save(tmp_path / "release")
    receiver = LabelPrivateClassifier().fit_release(problem.X, load_release(tmp_path / "release"))
    assert np.array_equal(receiver.estimator_.coef_, owner.estimator_.coef_)
    assert receiver.stages_ == ()


def test_posteriors_are_bayes_rule_with_the_model_as_prior(problem):
    model = LabelPrivateClassifier(stages=2, mechanism=RRWithPrior(1.0), random_state=0).fit(problem.X, problem.y)
    release = model.release_

    class Part:
        rows = np.arange(0, 600, 2)
        codes = release.codes[rows]
        channel = release.channel.take(rows)

    beliefs = np.random.default_rng(0).dirichlet(np.ones(3), size=600)
    found = posteriors(beliefs.copy(), [Part])
    for i in range(600):
        chances = release.channel.matrix(i)[:, release.codes[i]] if i % 2 == 0 else np.ones(3)
        expected = beliefs[i] * chances / (beliefs[i] * chances).sum()
        np.testing.assert_allclose(found[i], expected, rtol=1e-9)  # a product and a quotient in float64


class Watch:
    """Every soft fit: how many rows, and the parameters of the estimator."""

    def __init__(self, monkeypatch):
        self.fits = []
        plain = stage_loop.fit_soft

        def watched(estimator, X, targets, classes, weights=None):
            self.fits.append((len(X), estimator.get_params(), targets.copy()))
            return plain(estimator, X, targets, classes, weights=weights)

        monkeypatch.setattr(stage_loop, "fit_soft", watched)


def test_each_fit_has_its_parameters(problem, monkeypatch):
    watch = Watch(monkeypatch)
    LabelPrivateClassifier(
        SoftmaxRegression(),
        stages=2,
        prior=ClusterPrior(n_clusters=5),
        distil=True,
        rounds=2,
        stage_params=[{"l2": 0.1}, {"l2": 0.2}, {"l2": 0.3}],
        final_params={"max_iter": 7},
        random_state=0,
    ).fit(problem.X, problem.y)
    # Distil, a round of EM on the first stage's rows, and two rounds on all; both stages begin with a fit on the likelihood.
    assert [rows for rows, _, _ in watch.fits] == [600, 480, 600, 600]
    assert [params["l2"] for _, params, _ in watch.fits] == [0.1, 0.2, 0.3, 0.3]
    assert [params["max_iter"] for _, params, _ in watch.fits] == [SoftmaxRegression().max_iter] * 3 + [7]


def test_rounds_go_on_where_the_stages_end(problem, monkeypatch):
    watch = Watch(monkeypatch)
    params = [{"l2": l2} for l2 in (0.1, 0.2, 0.3, 0.4)]
    model = LabelPrivateClassifier(stages=2, rounds=2, stage_params=params, random_state=0).fit(problem.X, problem.y)
    assert [given["l2"] for _, given, _ in watch.fits] == [0.3, 0.4]  # the stages, by forward, had the first two
    assert model.estimator_.l2 == 0.4


def test_distilling_starts_from_the_prior_and_self_training_sharpens(problem, monkeypatch):
    watch = Watch(monkeypatch)
    model = LabelPrivateClassifier(stages=0, prior=ClusterPrior(n_clusters=5), rounds=1, random_state=0)
    model.fit(problem.X, problem.y)
    release = model.release_
    first, second = (targets for _, _, targets in watch.fits)
    assert np.array_equal(first, release.prior[release.prior_index])
    beliefs = SoftmaxRegression().fit_targets(problem.X, first, classes=[0, 1, 2]).predict_proba(problem.X)
    sharp = beliefs**1.5
    np.testing.assert_allclose(second, sharp / sharp.sum(axis=1, keepdims=True), rtol=1e-6)  # the same solver, float64


def test_a_public_prior_can_be_distilled_without_cost(problem):
    rows = np.full((600, 3), 0.1)
    rows[np.arange(600), problem.y] = 0.8  # an oracle that is public by declaration
    model = LabelPrivateClassifier(epsilon=0.0, stages=0, prior=PublicPrior(rows), random_state=0)
    model.fit(problem.X, problem.y)
    assert model.guarantee_.epsilon() == 0.0
    assert model.score(problem.X, problem.y) > 0.9


def test_a_whole_numbered_seed_moves_on_from_fit_to_fit(problem, monkeypatch):
    watch = Watch(monkeypatch)
    forest = RandomForestClassifier(n_estimators=3, random_state=5)
    told = {"prior": ClusterPrior(n_clusters=5), "distil": True, "correction": "em"}
    LabelPrivateClassifier(forest, stages=1, random_state=0, **told).fit(problem.X, problem.y)
    assert [params["random_state"] for _, params, _ in watch.fits] == [
        5,
        *range(7, 13),
    ]  # 6: posteriors of what was drawn


class Views(SoftmaxRegression):
    """Takes views of an example, (n, views, d): learns from the mean view."""

    def fit_targets(self, X, targets, *, classes):
        return super().fit_targets(X.mean(axis=1), targets, classes=classes)

    def predict_proba(self, X):
        return super().predict_proba(X.mean(axis=1))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags


def test_views_pass_where_the_estimator_takes_them(problem):
    X = np.stack([problem.X + 0.1, problem.X - 0.1], axis=1)
    settings = {"trust": "curator", "correction": "em", "random_state": 0}
    viewed = LabelPrivateClassifier(Views(), **settings).fit(X, problem.y)
    plain = LabelPrivateClassifier(SoftmaxRegression(), **settings).fit(X.mean(axis=1), problem.y)
    assert np.array_equal(viewed.release_.codes, plain.release_.codes)
    np.testing.assert_allclose(viewed.predict_proba(X), plain.predict_proba(X.mean(axis=1)), atol=1e-12)
    with pytest.raises(ValueError, match="Found array with dim 3"):
        LabelPrivateClassifier(SoftmaxRegression(), **settings).fit(X, problem.y)


@pytest.mark.parametrize(("name", "says"), [("stages", r"stages=\(0\.7, 0\.3\)"), ("prior", r"ClusterPrior\(\)")])
def test_a_word_that_is_no_recipe_is_answered_with_one(name, says):
    model = LabelPrivateClassifier(epsilon=1.0, classes=[0, 1], **{name: "two"})
    with pytest.raises(LabelDPError, match=rf"`{name}` must be \"auto\", .*got 'two'\. For example .*{says}"):
        model.fit(np.zeros((20, 2)), [0, 1] * 10)
