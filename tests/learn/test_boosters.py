"""Boosted trees of other libraries: trained like any classifier, saved in their own formats, checked before they are read."""

from __future__ import annotations

import copy
import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labeldp.errors import LabelDPError, ReleaseError
from labeldp.learn import BoosterClassifier, LabelPrivateClassifier, load_model, save_model

LIBRARIES = {
    "lightgbm": ("LGBMClassifier", {"n_estimators": 12, "num_leaves": 7, "verbose": -1}),
    "xgboost": ("XGBClassifier", {"n_estimators": 12, "max_depth": 3}),
    "catboost": ("CatBoostClassifier", {"iterations": 12, "depth": 3, "verbose": False, "allow_writing_files": False}),
}
#: 1 - p in single precision, as XGBoost computes it, and in double precision, as we do.
SINGLE = 2.0**-24


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> str:
    pytest.importorskip(request.param, reason=f"needs {request.param}")
    return str(request.param)


def make(library: str, **more: Any) -> Any:
    name, params = LIBRARIES[library]
    return getattr(pytest.importorskip(library), name)(**{**params, **more})


def rows(n_classes: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 4))
    X[::7, 1] = np.nan
    y = (np.nan_to_num(X[:, 0] + X[:, 1]) > 0).astype(int) + (X[:, 2] > 1)
    return X, np.array(["a", "b", "c"])[np.minimum(y, n_classes - 1)]


@pytest.mark.parametrize("n_classes", [2, 3])
def test_saved_model_predicts_as_before(library: str, n_classes: int, tmp_path: Path) -> None:
    X, y = rows(n_classes)
    classes = ["a", "b", "c"][:n_classes]
    model = LabelPrivateClassifier(make(library), epsilon=3.0, classes=classes, random_state=0).fit(X, y)
    save_model(model, tmp_path / "m.skops")
    loaded = load_model(tmp_path / "m.skops")
    np.testing.assert_allclose(loaded.predict_proba(X), model.predict_proba(X), rtol=0, atol=SINGLE)
    assert loaded.predict(X).tolist() == model.predict(X).tolist()
    assert loaded.guarantee_ == model.guarantee_
    # What was saved can be trained again: the template is there, without a seed.
    assert isinstance(loaded.estimator, BoosterClassifier)
    again = LabelPrivateClassifier(loaded.estimator, epsilon=3.0, classes=classes, random_state=0).fit(X, y)
    assert again.predict_proba(X).shape == (600, n_classes)


def test_saved_twice_is_the_same(library: str, tmp_path: Path) -> None:
    X, y = rows(3)
    model = make(library).fit(X, np.unique(y, return_inverse=True)[1])
    save_model(model, tmp_path / "one.skops")
    loaded = load_model(tmp_path / "one.skops")
    save_model(loaded, tmp_path / "two.skops")
    assert load_model(tmp_path / "two.skops").text_ == loaded.text_
    np.testing.assert_array_equal(load_model(tmp_path / "two.skops").predict_proba(X), loaded.predict_proba(X))


def test_text_holds_nothing_of_the_machine(library: str) -> None:
    X, y = rows(2)
    path = "/srv/secret-folder"
    more = {"lightgbm": {"forcedsplits_filename": path}, "xgboost": {}, "catboost": {"train_dir": path}}[library]
    fitted = BoosterClassifier(library, params={**LIBRARIES[library][1], **more}).fit(X, y == "b")
    assert "secret-folder" not in fitted.text_


def test_what_cannot_be_kept_is_refused_when_it_is_saved(tmp_path: Path) -> None:
    lightgbm = pytest.importorskip("lightgbm", reason="needs lightgbm")
    X, y = rows(2)
    X = np.column_stack([np.nan_to_num(X), np.arange(len(X)) % 5])
    y = np.where(X[:, 4] % 2 == 0, "a", y)
    categorical = lightgbm.LGBMClassifier(n_estimators=3, verbose=-1).fit(X, y, categorical_feature=[4])
    with pytest.raises(LabelDPError, match="be made of plain trees, got lightgbm with a tree of categories"):
        save_model(categorical, tmp_path / "m.skops")
    own = lightgbm.LGBMClassifier(n_estimators=2, verbose=-1, objective=lambda y, p: (p - y, np.ones_like(p)))
    with pytest.raises(LabelDPError, match="settings that are plain values"):
        save_model(own.fit(X, y == "a"), tmp_path / "m.skops")
    assert not list(tmp_path.iterdir())


# ------------------------------------------------------------------------------------------------ forged texts


@functools.lru_cache
def fit_once(library: str) -> BoosterClassifier:
    X, y = rows(2)
    return BoosterClassifier(library, params=LIBRARIES[library][1]).fit(X, y)


def change_lightgbm(name: str, value: str) -> Any:
    def change(text: str) -> str:
        head, mark, rest = text.partition("Tree=0")
        lines = [f"{name}={value}" if line.startswith(f"{name}=") else line for line in rest.splitlines()]
        return head + mark + "\n".join(lines)

    return change


def change_json(*path: Any, value: Any) -> Any:
    def change(text: str) -> str:
        whole = json.loads(text)
        at = whole
        for step in path[:-1]:
            at = at[step]
        at[path[-1]] = value
        return json.dumps(whole)

    return change


TREE = ("learner", "gradient_booster", "model", "trees", 0)
FORGED = [
    ("lightgbm", change_lightgbm("left_child", "0 0 0 0 0 0")),
    ("lightgbm", change_lightgbm("left_child", "1 2 3 4 5 99999")),
    ("lightgbm", change_lightgbm("split_feature", "4 4 4 4 4 4")),
    ("lightgbm", change_lightgbm("num_leaves", "2000000000")),
    ("lightgbm", change_lightgbm("num_leaves", "-1")),
    ("lightgbm", change_lightgbm("threshold", "1 2 3")),
    ("lightgbm", change_lightgbm("threshold", "a b c d e f")),
    ("lightgbm", change_lightgbm("decision_type", "1 1 1 1 1 1")),
    ("lightgbm", lambda text: text.replace("max_feature_idx=3", "max_feature_idx=300")),
    ("lightgbm", lambda text: text.replace("num_class=1", "num_class=1000000")),
    ("lightgbm", lambda text: text.replace("sigmoid:1", "sigmoid:1 x:" + "9" * 99)),
    ("lightgbm", lambda text: text[: len(text) // 2]),
    ("lightgbm", lambda _: ""),
    ("xgboost", change_json(*TREE, "left_children", 0, value=0)),
    ("xgboost", change_json(*TREE, "left_children", 0, value=10**6)),
    ("xgboost", change_json(*TREE, "right_children", 0, value=1)),
    ("xgboost", change_json(*TREE, "split_indices", 0, value=99)),
    ("xgboost", change_json(*TREE, "split_conditions", value=[])),
    ("xgboost", change_json(*TREE, "split_conditions", 0, value="x")),
    ("xgboost", change_json(*TREE, "split_type", 0, value=1)),
    ("xgboost", change_json("learner", "gradient_booster", "model", "tree_info", 0, value=7)),
    ("xgboost", change_json("learner", "gradient_booster", "name", value="gblinear")),
    ("xgboost", change_json("learner", "learner_model_param", "num_class", value="100000000")),
    ("xgboost", change_json("learner", "learner_model_param", "base_score", value="[1,2,3]")),
    ("xgboost", change_json("learner", "objective", "name", value="rank:ndcg")),
    ("xgboost", lambda _: "[" * 1000),
    ("catboost", change_json("oblivious_trees", 0, "splits", 0, "float_feature_index", value=99)),
    ("catboost", change_json("oblivious_trees", 0, "splits", 0, "border", value=1e9)),
    ("catboost", change_json("oblivious_trees", 0, "leaf_values", value=[0.0])),
    ("catboost", change_json("oblivious_trees", 0, "splits", value=[{}] * 40)),
    ("catboost", change_json("scale_and_bias", value=[1.0, [0.0] * 50])),
    ("catboost", change_json("features_info", "float_features", 0, "flat_feature_index", value=77)),
    ("catboost", change_json("features_info", "float_features", value=[])),
    ("catboost", change_json("features_info", "categorical_features", value=[{"x": 1}])),
]


@pytest.mark.parametrize(("library", "change"), FORGED)
def test_forged_trees_are_refused_before_the_library_reads_them(library: str, change: Any, tmp_path: Path) -> None:
    pytest.importorskip(library, reason=f"needs {library}")
    model = copy.copy(fit_once(library))
    forged = change(model.text_)
    assert forged != model.text_
    model.text_ = forged
    save_model(model, tmp_path / "m.skops")  # which seals whatever it is given
    with pytest.raises(ReleaseError, match="is not a readable model"):
        load_model(tmp_path / "m.skops")


def test_forged_sizes_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("lightgbm", reason="needs lightgbm")
    for name, value in (("n_features_in_", 3), ("classes_", np.arange(3)), ("library", "no such")):
        model = copy.copy(fit_once("lightgbm"))
        setattr(model, name, value)
        save_model(model, tmp_path / f"{name}.skops")
        with pytest.raises(ReleaseError, match="is not a readable model"):
            load_model(tmp_path / f"{name}.skops")


def test_unknown_library_is_an_error_of_ours() -> None:
    with pytest.raises(LabelDPError, match="be one of lightgbm, xgboost, catboost"):
        BoosterClassifier("treeboost").fit([[0.0], [1.0]], [0, 1])
