"""A quick reader before a long fit: the rule, and the long fit against the same steps taken one by one."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from labeldp import LabelPrivateClassifier, Ledger
from labeldp.errors import LabelDPError
from labeldp.learn.readers import ASKS, LITTLE, MOST_ASKED, READS, SECONDS_TO_ASK, choose_reader, choose_way
from labeldp.learn.settings import SELF_TEMPERATURE
from labeldp.mechanisms import RRWithPrior, most_information
from labeldp.nn import NetClassifier
from labeldp.nn.checkpoint import get_arrays
from labeldp.priors import ClusterPrior, tempered

CLASSES = (0, 1, 2)
QUICK = {"epochs": 1, "hidden": 16, "batch_size": 60}


@pytest.fixture(scope="module")
def bars():
    """Upright, level and slanting stripes in noise, 12 x 12, grey bytes."""
    generator = np.random.default_rng(3)
    y = generator.integers(0, 3, 240)
    across, down = np.meshgrid(np.arange(12), np.arange(12))
    waves = np.stack([across, down, across + down])[y] / 4 + generator.random((240, 1, 1))
    images = 128 + 50 * np.sin(2 * np.pi * waves) + 20 * generator.normal(size=(240, 12, 12))
    return images.clip(0, 255).astype(np.uint8), y


class Brief(NetClassifier):
    """The network with a reader of one pass: an estimator says by itself who reads for it."""

    def make_reader(self):
        return super().make_reader().set_params(epochs=1)


def make_learner(network=None, **settings):
    network = Brief("fast-cnn", **QUICK) if network is None else network
    return LabelPrivateClassifier(
        network, **{"epsilon": 1.0, "trust": "no one", "classes": CLASSES, "random_state": 0, **settings}
    )


@pytest.fixture(scope="module")
def fitted(bars):
    return make_learner().fit(*bars)


def weights_of(model):
    return get_arrays(model.estimator_.module_)


def are_the_same(one, other):
    return all(np.array_equal(array, weights_of(other)[name]) for name, array in weights_of(one).items())


# ------------------------------------------------------------------------------------------------------------- the rule


def test_the_rule_counts_nats_a_class():
    for rows in (500, 8_000, 50_000):
        for classes in (2, 10, 100):
            little = [
                choose_way(epsilon, n_examples=rows, n_classes=classes) == READS
                for epsilon in (0.1, 0.5, 1.0, 2.0, 2.9, 3.0, 8.0)
            ]
            assert little == sorted(little, reverse=True)
            assert not any(little[-2:])  # such an answer says much by itself
    edge = LITTLE * 10 / most_information(1.0)
    assert choose_way(1.0, n_examples=int(edge) - 1, n_classes=10) == READS
    assert choose_way(1.0, n_examples=int(edge) + 1, n_classes=10) is None
    assert choose_way(0.0, n_examples=100, n_classes=10) is None  # nothing is answered
    assert choose_way(math.inf, n_examples=100, n_classes=10, minutes=9.0) is None
    assert choose_way(5.9, n_examples=10**9, n_classes=2, grey=True) == READS
    assert choose_way(6.0, n_examples=100, n_classes=2, minutes=9.0, grey=True) is None


def test_questions_are_chosen_where_a_fit_is_long_beside_features():
    long = {"n_examples": 50_000, "minutes": 50_000 * SECONDS_TO_ASK / 60}
    assert choose_way(2.0, n_classes=10, **long) == ASKS
    assert choose_way(2.0, n_classes=10, n_examples=50_001, minutes=long["minutes"]) is None
    assert choose_way(2.0, n_classes=2, **long) is None  # a prior changes nothing
    assert choose_way(1.0, n_classes=10, **long) == READS
    assert choose_way(MOST_ASKED, n_classes=10, **long) is None
    assert choose_way(3.5, n_examples=100, n_classes=10, minutes=1.0) == ASKS
    assert NetClassifier("fast-cnn", cpu_minutes=7).planned_minutes == 7
    assert NetClassifier("fast-cnn", epochs=7).planned_minutes == 0
    assert NetClassifier("fast-cnn", preset="hours").planned_minutes == 60


def test_grey_is_what_has_one_channel():
    network = NetClassifier("fast-cnn")
    rows = np.zeros((5, 300))
    for shape, grey in (
        ((5, 20, 20), True),
        ((5, 20, 20, 1), True),
        ((5, 1, 20, 20), True),
        ((5, 20, 20, 3), False),
        ((5, 3, 20, 20), False),
    ):
        assert network.are_grey(np.zeros(shape)) == network.are_grey(np.zeros(shape).tolist()) == grey
        items = torch.utils.data.TensorDataset(torch.zeros(shape))
        assert network.are_grey(items) == grey
    assert network.are_grey(rows)  # square and grey unless it is said
    assert network.set_params(image_shape=(15, 20)).are_grey(rows)
    assert network.set_params(image_shape=(15, 20, 1)).are_grey(rows)
    assert not network.set_params(image_shape=(10, 10, 3)).are_grey(rows)
    assert not network.are_grey(torch.utils.data.TensorDataset(torch.zeros(0, 1, 20, 20)))


@pytest.mark.parametrize(
    "settings",
    [
        {"correction": "forward"},
        {"rounds": 1},
        {"distil": True},
        {"stage_params": [{"epochs": 2}]},
        {"temperature": 0.5},
        {"filter_earlier": True},
    ],
)
def test_who_sets_the_plan_gets_it(settings):
    sizes = {"n_examples": 240, "n_classes": 3}
    network = NetClassifier("fast-cnn")
    X = np.zeros((240, 12, 12, 3), np.uint8)
    assert not choose_reader(make_learner(), network, X, 1.0, **sizes).only_asks
    assert choose_reader(make_learner(**settings), network, X, 1.0, **sizes) is None
    assert choose_reader(make_learner(), network, X, 3.0, **sizes).only_asks
    assert choose_reader(make_learner(**settings), network, X, 3.0, **sizes) is None
    assert choose_reader(make_learner(), NetClassifier("mlp"), X, 1.0, **sizes) is None  # reads quickly by itself
    assert choose_reader(make_learner(), network, X, 4.0, **sizes) is None
    assert choose_reader(make_learner(), network, X[..., 0], 4.0, **sizes) is not None


@pytest.mark.parametrize(
    "settings",
    [{"stages": 2}, {"stages": np.array([0.5, 0.5])}, {"prior": ClusterPrior()}, {"mechanism": RRWithPrior(3.0)}],
)
def test_who_chooses_the_questions_gets_them(settings):
    sizes = {"n_examples": 240, "n_classes": 3}
    X = np.zeros((240, 12, 12, 3), np.uint8)
    assert choose_reader(make_learner(**settings), NetClassifier("fast-cnn"), X, 3.0, **sizes) is None
    assert choose_reader(make_learner(**settings), NetClassifier("fast-cnn"), X, 1.0, **sizes) is not None


# --------------------------------------------------------------------------------------------- the fit, taken step by step


def test_the_long_fit_learns_the_posteriors_of_the_quick_one(bars, fitted):
    X, y = bars
    network = Brief("fast-cnn", **QUICK)
    features = network.read_images(X)
    quick = make_learner(network.make_reader()).fit(features, y)
    # The same draws: what runs through the stages is the quick network on features, and nothing else.
    assert np.array_equal(quick.release_.codes, fitted.release_.codes)
    assert (fitted.correction_, len(fitted.stages_)) == ("em", 2)
    beliefs = tempered(quick.predict_proba(features), SELF_TEMPERATURE)  # mixup has blurred them
    power = 0.5  # so few answers were pooled first, so that a row's own answer was counted already
    joint = beliefs * quick.release_.channel.likelihood(quick.release_.codes) ** power
    by_hand = clone(network).fit_targets(X, joint / joint.sum(axis=1, keepdims=True), classes=CLASSES)
    for name, array in get_arrays(by_hand.module_).items():
        # Targets agree to the last digits of float64, and are rounded to float32.
        np.testing.assert_allclose(weights_of(fitted)[name], array, rtol=1e-4, atol=1e-5)
    assert isinstance(fitted.estimator_, NetClassifier)
    assert fitted.estimator_.module == "fast-cnn"
    assert NetClassifier().make_reader().module == "mlp"
    assert fitted.guarantee_.epsilon() <= 1.0
    assert not fitted.guarantee_.trust


def test_features_need_no_label_and_follow_the_images(bars):
    X, _ = bars
    grey = NetClassifier("fast-cnn", **QUICK).read_images(X)
    assert grey.shape == (240, min(240, 640))
    both = NetClassifier("fast-cnn", augment="shift,flip", **QUICK).read_images(X)
    assert both.shape == (240, 2, min(240, 640))  # an image and its mirror image
    colour = np.repeat(X[..., None], 3, axis=3)
    first, last = (
        NetClassifier("fast-cnn").read_images(colour),
        NetClassifier("fast-cnn").read_images(colour.transpose(0, 3, 1, 2)),
    )
    assert np.array_equal(first, last)
    network = NetClassifier("fast-cnn", **QUICK).fit(X, bars[1])
    before = vars(network).copy()
    network.read_images(X[:50])
    assert vars(network) == before  # a fitted network stays as it is
    with pytest.raises(LabelDPError, match="10"):
        NetClassifier("fast-cnn").read_images(X[:, :8, :8])


def test_a_receiver_ends_with_the_owners_model(bars, fitted):
    X, _ = bars
    receiver = make_learner(random_state=None).fit_release(X, fitted.release_)
    assert are_the_same(fitted, receiver)
    asked = make_learner(correction="forward").fit_release(X, fitted.release_)
    assert not are_the_same(fitted, asked)


def test_a_curator_counts_in_clusters_of_the_features(bars):
    X, y = bars
    X, y = np.concatenate([X, X[:, ::-1]]), np.concatenate([y, y])
    model = make_learner(trust="curator", epsilon=1.4).fit(X, y)
    assert model.shares_ == ()
    assert model.prior_.startswith(ClusterPrior.__name__)
    assert model.guarantee_.trust
    assert model.predict(X).shape == y.shape
    assert are_the_same(model, make_learner(trust="curator", epsilon=1.4).fit_release(X, model.release_))


def test_persons_are_read_too(bars):
    X, y = bars
    persons = np.arange(240) // 2
    model = make_learner().fit(X, y, persons=persons)
    assert len(model.release_) < len(y)
    assert model.guarantee_.epsilon() <= 1.0
    receiver = make_learner().fit_release(X, model.release_, persons=persons)
    assert are_the_same(model, receiver)


def test_datasets_pipelines_and_final_parameters(bars):
    X, y = bars

    class Pairs(torch.utils.data.Dataset):
        def __len__(self):
            return len(X)

        def __getitem__(self, row):
            return torch.from_numpy(X[row, None].astype(np.float32) / 255), int(y[row])

    model = make_learner().fit(Pairs(), y)
    assert model.correction_ == "em"
    assert model.predict(Pairs()).shape == y.shape
    piped = make_learner(
        make_pipeline(FunctionTransformer(np.flip, kw_args={"axis": 1}), Brief("fast-cnn", **QUICK)),
        final_params={"hidden": 24},
    ).fit(X, y)
    assert piped.estimator_.module_.width == 24
    assert piped.predict(X).shape == y.shape


def test_what_cannot_be_done_is_refused_before_the_charge(bars, tmp_path):
    X, y = bars
    ledger = Ledger(tmp_path / "spent.sqlite", budget=2.0)
    with pytest.raises(LabelDPError, match="stage_params"):
        make_learner(final_params={"colour": 1}, ledger=ledger).fit(X, y)
    with pytest.raises(LabelDPError):
        make_learner(ledger=ledger).fit(X[:, :8, :8], y)
    with pytest.raises(LabelDPError, match="sample_weight"):
        make_learner(ledger=ledger).fit(X, y, sample_weight=np.ones(len(y)) / 2)
    assert ledger.remaining("labels") == 2.0


def test_a_killed_run_goes_on_and_ends_with_the_same_weights(bars, fitted, tmp_path):
    X, y = bars
    steps = []

    def kill(done, _total, _loss):
        steps.append(done)
        if len(steps) == 3 and not (tmp_path / "again").exists():
            raise KeyboardInterrupt

    network = Brief("fast-cnn", **{**QUICK, "epochs": 2}, checkpoint=tmp_path / "network", progress=kill)
    whole = make_learner(Brief("fast-cnn", **{**QUICK, "epochs": 2})).fit(X, y)
    with pytest.raises(KeyboardInterrupt):
        make_learner(network, checkpoint=tmp_path / "run").fit(X, y)
    (tmp_path / "again").touch()
    resumed = make_learner(network, checkpoint=tmp_path / "run").fit(X, y)
    assert are_the_same(whole, resumed)


# --------------------------------------------------------------------------------------------------- who only asks


class Patient(Brief):
    """The same, of which a fit counts as long however few its passes are."""

    planned_minutes = 60.0


def make_asked(network=None, **settings):
    network = Patient("fast-cnn", **QUICK) if network is None else network
    return make_learner(network, **{"epsilon": 3.0, **settings})


@pytest.fixture(scope="module")
def coloured(bars):
    X, y = bars
    return np.stack([X, X[:, ::-1], X], axis=3), y


@pytest.fixture(scope="module")
def asked(coloured):
    return make_asked().fit(*coloured)


def test_the_quick_one_asks_and_the_long_one_reads_all_answers(coloured, asked):
    X, y = coloured
    network = Patient("fast-cnn", **QUICK)
    quick = make_learner(network.make_reader(), epsilon=3.0).fit(network.read_images(X), y)
    release = asked.release_
    # The same draws, in both stages: the questions of the second are those of the quick network's beliefs.
    assert np.array_equal(quick.release_.codes, release.codes)
    assert np.array_equal(quick.release_.stage, release.stage)
    likelihood = release.channel.likelihood(release.codes)
    assert np.allclose(likelihood, quick.release_.channel.likelihood(quick.release_.codes), rtol=0, atol=0)
    assert (asked.correction_, asked.rounds_, len(asked.stages_)) == ("forward", 0, 2)
    order = np.argsort(release.stage, kind="stable")  # one stage after the other
    by_hand = clone(network).fit_likelihood(X[order], likelihood[order], classes=CLASSES)
    for name, array in get_arrays(by_hand.module_).items():
        assert np.array_equal(weights_of(asked)[name], array)
    assert asked.guarantee_.epsilon() <= 3.0
    assert not asked.guarantee_.trust
    # Where a fit is short there are neither features nor stages.
    plain = make_learner(epsilon=3.0).fit(X, y)
    assert len(plain.stages_) == 1


def test_whoever_is_trusted_answers_are_asked_for(coloured, asked):
    X, y = coloured
    model = make_asked(trust="curator").fit(X, y)
    assert not model.guarantee_.trust
    assert are_the_same(asked, model)


def test_a_receiver_of_answers_needs_no_reader(coloured, asked, monkeypatch):
    X, _ = coloured
    monkeypatch.setattr(Patient, "read_images", None)
    receiver = make_asked(random_state=None).fit_release(X, asked.release_)
    assert are_the_same(asked, receiver)
    assert [stage.average_k for stage in receiver.stages_] == [stage.average_k for stage in asked.stages_]
    # Nor does it matter to her whether her own fits count as long.
    again = make_learner(epsilon=3.0).fit_release(X, asked.release_)
    assert are_the_same(asked, again)


def test_one_stage_needs_no_features(coloured, monkeypatch):
    X, y = coloured
    monkeypatch.setattr(Patient, "read_images", None)
    few = slice(0, 7)  # too few for two stages
    model = make_asked().fit(X[few], y[few])
    assert len(model.stages_) == 1
    assert are_the_same(model, make_asked().fit_release(X[few], model.release_))


def test_a_prior_that_came_with_a_release_is_read(coloured):
    X, y = coloured
    owner = make_asked(prior=ClusterPrior(n_clusters=4, epsilon=0.5), trust="curator").fit(X.astype(np.float32), y)
    assert owner.correction_ == "em"
    receiver = make_asked(trust="curator").fit_release(X.astype(np.float32), owner.release_)
    assert receiver.correction_ == "em"


def test_persons_and_datasets_are_asked_too(coloured, tmp_path):
    X, y = coloured
    persons = np.arange(240) // 2
    model = make_asked().fit(X, y, persons=persons)
    assert len(model.release_) < len(y)
    assert are_the_same(model, make_asked().fit_release(X, model.release_, persons=persons))
    items = torch.utils.data.TensorDataset(torch.from_numpy(X.transpose(0, 3, 1, 2).astype(np.float32) / 255))
    ledger = Ledger(tmp_path / "spent.sqlite", budget=4.0)
    told = make_asked(ledger=ledger).fit(items, y)
    assert len(told.stages_) == 2
    assert told.predict(items).shape == y.shape
    assert ledger.remaining("labels") == 1.0
    with pytest.raises(LabelDPError, match="sample_weight"):
        make_asked(ledger=ledger).fit(X, y, sample_weight=np.ones(len(y)) / 2)
    assert ledger.remaining("labels") == 1.0


def test_a_killed_asked_run_goes_on(coloured, tmp_path):
    X, y = coloured
    network = Patient("fast-cnn", **{**QUICK, "epochs": 2})
    whole = make_asked(network).fit(X, y)
    steps = []

    def kill(done, _total, _loss):
        steps.append(done)
        if len(steps) == 6:
            raise KeyboardInterrupt

    kept = {"checkpoint": tmp_path / "network", "progress": kill}
    with pytest.raises(KeyboardInterrupt):
        make_asked(clone(network).set_params(**kept), checkpoint=tmp_path / "run").fit(X, y)
    resumed = make_asked(clone(network).set_params(**kept), checkpoint=tmp_path / "run").fit(X, y)
    assert len(steps) < 2 * 8  # not all over again
    assert are_the_same(whole, resumed)
