"""Saved models: the same model comes back, with its promise, without the labels, and without running anything.

Files of the version before public names are in `saved_by_0.1`; their answers are compared bit for bit, since loading
does no arithmetic and predicting is the same product and softmax.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import skops.io
from sklearn.base import BaseEstimator
from sklearn.datasets import load_digits
from sklearn.ensemble import (
    BaggingClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    RandomTreesEmbedding,
)
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from labeldp import ClusterPrior, LabelPrivateClassifier, Ledger, load_release
from labeldp.errors import LabelDPError, PrivacyError, ReleaseError
from labeldp.features import Embeddings, PatchFeatures
from labeldp.learn import (
    LPRRSGD,
    PATE,
    LPNormalSGD,
    OutputPerturbation,
    PrivateGLM,
    SimplexERM,
    SoftmaxRegression,
    SufficientStatistics,
    load_model,
    save_model,
    saved,
)
from labeldp.learn.ratings import LabelPrivateRatings
from labeldp.learn.saved import PROMISE
from labeldp.learn.soundness import _walk
from labeldp.release.templates import GENERATORS, forget_owner, is_owners

OLD = Path(__file__).parent / "saved_by_0.1"
ANSWERS = json.loads((OLD / "answers.json").read_text(encoding="utf-8"))
X = np.random.default_rng(0).normal(size=(300, 3))
Y = np.where(X[:, 0] > 0, "yes", "no")


@pytest.fixture(scope="module")
def fitted():
    model = LabelPrivateClassifier(SoftmaxRegression(), epsilon=2.0, stages=2, prior=ClusterPrior(n_clusters=4))
    return model.fit(X, Y)


def test_the_same_model_comes_back_with_its_promise(fitted, tmp_path):
    model = fitted
    save_model(model, tmp_path / "m.skops", facts={"label": "ill"})
    back = load_model(tmp_path / "m.skops")
    assert np.array_equal(back.predict_proba(X), model.predict_proba(X))
    assert back.predict(X).tolist() == model.predict(X).tolist()
    assert back.guarantee_ == model.guarantee_
    assert back.stages_ == model.stages_
    assert back.facts_["label"] == "ill"
    assert (back.release_.seeded, len(back.release_)) == (False, 300)


def test_a_loaded_model_can_be_saved_again(fitted, tmp_path):
    model = fitted
    save_model(model, tmp_path / "a")
    save_model(load_model(tmp_path / "a"), tmp_path / "b")
    assert np.array_equal(load_model(tmp_path / "b").predict_proba(X), model.predict_proba(X))


def test_saving_leaves_the_model_as_it_was(fitted, tmp_path):
    model = fitted
    save_model(model, tmp_path / "m")
    assert len(model.release_.codes) == 300
    assert model.prior is not None


def test_the_file_holds_no_released_label(fitted, tmp_path):
    model = fitted
    save_model(model, tmp_path / "m")
    with zipfile.ZipFile(tmp_path / "m") as archive:
        sizes = [i.file_size for i in archive.infolist() if i.filename.endswith(".npy")]
    assert max(sizes) < 300  # any array with an entry per label would be longer, header included


def test_an_existing_file_is_never_replaced(fitted, tmp_path):
    target = tmp_path / "m"
    target.write_text("mine")
    with pytest.raises(LabelDPError, match="new file"):
        save_model(fitted, target)
    assert target.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [target]


def hostile(payload, path):
    header = json.dumps({"format": "labeldp model", "version": 2, "facts": {}})
    path.write_bytes(skops.io.dumps({"header": header, "model": payload}))


@pytest.mark.parametrize("kind", ["partial", "transformer", "bound"])
def test_a_file_that_would_run_code_is_refused_and_runs_nothing(tmp_path, kind):
    victim = tmp_path / "ran"
    payloads = {
        "partial": functools.partial(os.system, f"touch {victim}"),
        "transformer": Pipeline([("f", FunctionTransformer(os.system)), ("c", LogisticRegression())]),
        "bound": functools.partial(victim.touch),
    }
    hostile(payloads[kind], tmp_path / "m")
    with pytest.raises(ReleaseError, match="known types"):
        load_model(tmp_path / "m")
    assert not victim.exists()


def test_a_public_name_is_not_enough_to_be_built(tmp_path):
    """Files name public classes, but only those in the list: a ledger or a reader of files is not one of them."""
    model = SoftmaxRegression().fit(X, Y)
    save_model(model, tmp_path / "m")
    with zipfile.ZipFile(tmp_path / "m") as archive:
        parts = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    for name in ("Ledger", "load_release"):
        schema = (
            parts["schema.json"].replace(b'"labeldp.learn"', b'"labeldp"').replace(b"SoftmaxRegression", name.encode())
        )
        assert schema != parts["schema.json"]
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            for file, data in {**parts, "schema.json": schema}.items():
                archive.writestr(file, data)
        with pytest.raises(ReleaseError, match="known types"):
            load_model(tmp_path / name)


def test_types_that_would_not_load_are_not_saved(tmp_path):
    strange = Pipeline([("f", FunctionTransformer(os.path.join)), ("c", LogisticRegression())])
    with pytest.raises(LabelDPError, match="save_model"):
        save_model(strange, tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


def test_cut_short_and_foreign_files(fitted, tmp_path):
    save_model(fitted, tmp_path / "m")
    data = (tmp_path / "m").read_bytes()
    for end in (0, 10, len(data) // 2, len(data) - 5):
        (tmp_path / "cut").write_bytes(data[:end])
        with pytest.raises(ReleaseError, match="not a readable model"):
            load_model(tmp_path / "cut")
    (tmp_path / "other").write_bytes(skops.io.dumps({"header": json.dumps({"format": "x"}), "model": 1}))
    with pytest.raises(ReleaseError, match="labeldp model"):
        load_model(tmp_path / "other")


def test_classes_may_be_a_range(tmp_path):
    rows = np.repeat([[-1.0], [1.0]], 100, axis=0)
    model = LabelPrivateClassifier(epsilon=4.0, classes=range(2)).fit(rows, np.repeat([0, 1], 100))
    save_model(model, tmp_path / "model.skops")
    assert np.array_equal(load_model(tmp_path / "model.skops").predict(rows), model.predict(rows))
    assert model.classes == range(2)


def types_in(path):
    """Return the full names of all types that a file asks for."""
    found = set()

    def visit(node):
        if isinstance(node, dict):
            if isinstance(node.get("__module__"), str):
                found.add(f"{node['__module__']}.{node['__class__']}")
            node = list(node.values())
        if isinstance(node, list):
            for part in node:
                visit(part)

    with zipfile.ZipFile(path) as archive:
        visit(json.loads(archive.read("schema.json")))
    return found


LEARNERS = {
    "forest": LabelPrivateClassifier(RandomForestClassifier(n_estimators=2, max_depth=2), epsilon=3.0),
    "network": LabelPrivateClassifier(MLPClassifier((4,), tol=10.0, random_state=0), epsilon=3.0),
    "network by sgd": LabelPrivateClassifier(MLPClassifier((4,), tol=10.0, solver="sgd", random_state=0), epsilon=3.0),
    "pipeline": make_pipeline(StandardScaler(), LPRRSGD(epsilon=3.0, clip=2.0)),
    "prior": LPRRSGD(epsilon=3.0, clip=2.0, prior=ClusterPrior(n_clusters=3)),
    "normal": LPNormalSGD(epsilon=3.0, clip=2.0),
    "ridge": SufficientStatistics(epsilon=3.0, clip=2.0),
    "softmax": SufficientStatistics(epsilon=3.0, clip=2.0, head="softmax"),
    "output": OutputPerturbation(epsilon=3.0, clip=2.0, loss="huber"),
    "simplex": SimplexERM(epsilon=3.0, clip=2.0, n_samples=20),
}


# Networks of scikit-learn 1.6 take no weights, and are fitted all the same.
@pytest.mark.filterwarnings("ignore:.*MLPClassifier takes no sample_weight:UserWarning")
@pytest.mark.parametrize("name", LEARNERS)
def test_every_learner_can_be_saved_with_its_promise_and_without_its_owner(name, tmp_path):
    model = LEARNERS[name]
    learner = model[-1] if isinstance(model, Pipeline) else model
    learner.set_params(ledger=Ledger(tmp_path / "ledger", budget=10.0, delta=1e-3), random_state=3)
    model.fit(X, Y)
    save_model(model, tmp_path / "m")
    back = load_model(tmp_path / "m")
    assert np.array_equal(back.predict_proba(X), model.predict_proba(X))
    again = back[-1] if isinstance(back, Pipeline) else back
    assert again.guarantee_ == learner.guarantee_
    assert again.ledger is again.random_state is None
    assert back.facts_["seeded"] is True
    ours = {name for name in types_in(tmp_path / "m") if name.startswith("labeldp")}
    assert ours
    assert not [name for name in ours if any(part.startswith("_") for part in name.split("."))]
    save_model(back, tmp_path / "again")
    assert np.array_equal(load_model(tmp_path / "again").predict_proba(X), model.predict_proba(X))


def owned(place: str) -> Pipeline:
    """A model of which every part has settings that are its owner's: folders, seeds, who is told."""
    trees = RandomForestClassifier(3, max_depth=2, random_state=31337, verbose=0)
    inner = Pipeline([("scale", StandardScaler()), ("trees", trees)], memory=place)
    several = BaggingClassifier(inner, n_estimators=2, random_state=31337)
    rows = FeatureUnion(
        [
            ("plain", Embeddings(cache=place)),
            ("leaves", RandomTreesEmbedding(2, random_state=31337, sparse_output=False)),
        ]
    )
    return Pipeline([("rows", rows), ("several", several)], memory=place)


def list_owned(model: Any) -> dict[str, Any]:
    """Settings of a model's parts, fitted ones too, that are not what they are by default."""
    parts = [part for part in _walk(model) if isinstance(part, BaseEstimator)]
    assert len(parts) > 8
    found = [(type(one).__name__, name, value) for one in parts for name, value in vars(one).items()]
    return {
        (kind, name): value
        for kind, name, value in found
        if isinstance(value, GENERATORS) or (is_owners(name) and any(np.ravel(np.asarray(value, object))))
    }


def test_no_place_and_no_seed_of_the_owner_is_in_a_file(tmp_path):
    """Before: `memory`, `cache` and every `random_state` were written as they were."""
    place = str(tmp_path / "owners folder")
    model = owned(place).fit(X, Y)
    before = list_owned(model)
    save_model(model, tmp_path / "m")
    assert list_owned(model) == before  # who saves keeps her own
    assert {name for _, name in before} == {"memory", "cache", "random_state", "_seeds"}
    with zipfile.ZipFile(tmp_path / "m") as archive:
        assert not any(b"owners folder" in archive.read(name) for name in archive.namelist())
    back = load_model(tmp_path / "m")
    assert not list_owned(back)
    assert back.predict(X).tolist() == model.predict(X).tolist()
    learner = LabelPrivateClassifier(owned(place), epsilon=4.0, correction="none", prior=None, stages=1)
    save_model(learner.fit(X, Y), tmp_path / "learner")
    assert not list_owned(load_model(tmp_path / "learner"))
    learner.set_params(final_params={"several__random_state": 31337, "several__n_estimators": 3})
    assert forget_owner(learner).final_params == {"several__n_estimators": 3}


@pytest.mark.parametrize("kind", [GradientBoostingClassifier, HistGradientBoostingClassifier])
def test_no_state_of_a_generator_is_in_a_file(kind, tmp_path):
    """Before: boosting kept the generator that its seed had made, from whose state the seed can be found again."""
    model = make_pipeline(StandardScaler(), kind(max_depth=2, random_state=31337)).fit(X, Y)
    assert any(isinstance(value, GENERATORS) for value in vars(model[-1]).values())
    save_model(model, tmp_path / "m")
    back = load_model(tmp_path / "m")
    assert not any(isinstance(value, GENERATORS) for value in vars(back[-1]).values())
    assert np.array_equal(back.predict_proba(X), model.predict_proba(X))


def test_a_forged_file_names_no_folder_to_the_loader(tmp_path, monkeypatch):
    """Before: the model was asked as it was loaded, with a cache in a folder of the file's choosing."""
    place = tmp_path / "not there"
    learner = LabelPrivateClassifier(epsilon=4.0, classes=["no", "yes"]).fit(X, Y)
    with monkeypatch.context() as forger:
        for name in ("forget_owner", "_drop_owners"):
            forger.setattr(saved, name, lambda model: model)
        save_model(owned(str(place)).fit(X, Y), tmp_path / "m")
        save_model(learner.set_params(ledger=str(place), checkpoint=str(place), random_state=3), tmp_path / "learner")
    shutil.rmtree(place)
    assert not list_owned(load_model(tmp_path / "m"))
    back = load_model(tmp_path / "learner")
    assert back.ledger is back.checkpoint is back.random_state is None
    assert not place.exists()


def test_ratings_can_be_saved_whole(tmp_path):
    pairs = [(u, i) for u in range(8) for i in range(6)]
    stars = [1 + 4 * ((u + i) % 2) for u, i in pairs]
    model = LabelPrivateRatings(epsilon=4.0, values=range(1, 6), random_state=1).fit(pairs, stars)
    save_model(model, tmp_path / "m")
    back = load_model(tmp_path / "m")
    assert np.array_equal(back.predict(pairs), model.predict(pairs))
    assert (back.guarantee_, back.stages_) == (model.guarantee_, model.stages_)
    assert len(back.release_) == len(pairs)


def test_a_template_that_was_fitted_on_raw_labels_is_stored_unfitted(tmp_path):
    template = SoftmaxRegression().fit(X, Y)
    model = LabelPrivateClassifier(template, epsilon=1.0).fit(X, Y)
    save_model(model, tmp_path / "m")
    back = load_model(tmp_path / "m")
    assert not hasattr(back.estimator, "coef_")
    assert hasattr(model.estimator, "coef_")


def test_a_class_may_move_to_another_module(tmp_path, monkeypatch):
    model = LabelPrivateClassifier(epsilon=3.0).fit(X, Y)
    save_model(model, tmp_path / "before")
    monkeypatch.setattr(SoftmaxRegression, "__module__", "labeldp.learn.elsewhere")
    monkeypatch.setattr(LabelPrivateClassifier, "__module__", "labeldp.other_room")
    save_model(model, tmp_path / "after")
    for name in ("before", "after"):
        assert np.array_equal(load_model(tmp_path / name).predict_proba(X), model.predict_proba(X))
    assert types_in(tmp_path / "after") == types_in(tmp_path / "before")
    assert {"labeldp.learn.SoftmaxRegression", "labeldp.learn.LabelPrivateClassifier"} <= types_in(tmp_path / "after")


NEW = np.array(ANSWERS["new"])
PAIRS = [(u, i) for u in range(1) for i in range(6)]
OLD_CALLS = {
    "softmax": lambda model: model.predict_proba(NEW),
    "forest": lambda model: model.predict_proba(NEW),
    "table": lambda model: model.predict_proba(pa.table({"age": [-1.0, 2.0], "town": ["Bern", "Lyon"]})),
    "pate": lambda model: model.predict_proba(NEW),
    "piped-pate": lambda model: model.predict_proba(NEW),
    "multi-label-pate": lambda model: model.predict(NEW),
    "ratings": lambda model: model.predict(PAIRS),
    "plain": lambda model: model.predict_proba(NEW),
    "network": lambda model: model.predict_proba(NEW),
}


@pytest.mark.parametrize("name", OLD_CALLS)
def test_files_of_the_version_before_load_and_answer_the_same(name, tmp_path):
    if name == "network":
        pytest.importorskip("torch", reason="networks need labeldp[torch]")
    model = load_model(OLD / f"{name}.skops")
    answers = np.asarray(OLD_CALLS[name](model), float)
    # Products and exponentials differ in the last bits from one processor to the next.
    np.testing.assert_array_max_ulp(answers, np.asarray(ANSWERS[name], float), maxulp=4)
    assert model.facts_["label"] == "ill"
    repr(model)  # settings that are younger than the file have their defaults
    save_model(model, tmp_path / "m")
    np.testing.assert_array_equal(np.asarray(OLD_CALLS[name](load_model(tmp_path / "m")), float), answers)


def test_the_promise_of_an_old_file_is_kept():
    model = load_model(OLD / "softmax.skops")
    assert model.guarantee_.to_json() == ANSWERS["softmax guarantee"]
    assert [stage.number for stage in model.stages_] == [1, 2]
    assert isinstance(load_model(OLD / "piped-pate.skops")[-1], PATE)


def test_a_release_of_the_version_before_loads():
    release = load_release(OLD / "release")
    old = ANSWERS["release"]
    assert release.codes.tolist() == old["codes"]
    assert release.channel.likelihood(release.codes)[:5].tolist() == old["likelihood"]
    assert (release.guarantee.to_json(), release.mechanism) == (old["guarantee"], old["mechanism"])


@pytest.mark.parametrize("flips", [True, False, "views"])
@pytest.mark.parametrize("head", ["softmax", "net"])
def test_features_of_images_and_what_is_behind_them_answer_the_same_to_the_last_bit(flips, head, tmp_path):
    if head == "net":
        pytest.importorskip("torch", reason="networks need labeldp[torch]")
        from labeldp.nn import NetClassifier

        head_model = NetClassifier(epochs=1)
    else:
        head_model = SoftmaxRegression(max_iter=10_000)
    if flips == "views" and head == "softmax":
        pytest.skip("several views are for networks")
    images, digits = load_digits(return_X_y=True)
    images, digits = images[:300].reshape(-1, 8, 8), digits[:300]
    pipeline = make_pipeline(PatchFeatures(filters=((3, 8),), n_components=8, flips=flips), head_model)
    model = LabelPrivateClassifier(pipeline, epsilon=8.0, classes=range(10), random_state=0).fit(images, digits)
    save_model(model, tmp_path / "model.skops")
    again = load_model(tmp_path / "model.skops")
    assert np.array_equal(again.predict_proba(images), model.predict_proba(images))


@pytest.mark.parametrize("name", ["guarantee", "seeded", "n_examples", "mechanism", "ledger_entry"])
def test_facts_do_not_overwrite_the_promise(fitted, tmp_path, name):
    """Before: what the caller said stood in the file, and a model of raw labels had a promise."""
    for model in (fitted, LogisticRegression().fit(X, Y)):
        with pytest.raises(PrivacyError, match=f"`facts` must leave the promise out, got '{name}'"):
            save_model(model, tmp_path / "m", facts={"label": "ill", name: fitted.guarantee_.to_json()})
    assert not (tmp_path / "m").exists()


def test_names_of_the_promise_are_all_known(fitted, tmp_path):
    save_model(fitted, tmp_path / "m")
    assert set(load_model(tmp_path / "m").facts_) <= PROMISE


def test_the_words_of_a_promise_are_those_of_the_fit(tmp_path):
    """Before: the words had the epsilon of a fit to come, beside the promise of the one that was."""
    model = PrivateGLM(family="binomial", epsilon=4.0, delta=1e-6, clip=1.0).fit(X, Y == "yes")
    save_model(model, tmp_path / "before")
    save_model(model.set_params(epsilon=0.01), tmp_path / "after")
    before, after = (load_model(tmp_path / name) for name in ("before", "after"))
    assert before.facts_ == after.facts_
    assert after.facts_["mechanism"] == f"PrivateGLM, {after.guarantee_.cost}"
