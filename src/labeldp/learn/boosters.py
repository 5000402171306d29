"""Boosted trees of LightGBM, XGBoost and CatBoost on disk: in their own formats, checked before the library reads them.

>>> BoosterClassifier("lightgbm", params={"n_estimators": 20})
BoosterClassifier(params={'n_estimators': 20})

The classifiers of these libraries train inside of `LabelPrivateClassifier` like any other. Saved they cannot be as they are: their
objects hold a pointer into compiled code, and would have to be pickled. Each library writes its trees as text, though: LightGBM
a text of its own, XGBoost and CatBoost JSON. `save_model` puts that text in the place of the object (`pack_boosters`), inside a
`BoosterClassifier`, which predicts with it as the library does.

*Why it is read twice.* The libraries' readers trust what they read. A child that points back to its parent never ends, one
beyond the last node reads memory that is not its own, and the interpreter is gone. So the text is read here first:

| what | what must hold |
|---|---|
| a node of LightGBM or XGBoost | both children are there and come after it, and no node is a child twice: every path ends |
| an oblivious tree of CatBoost | 2^depth leaves for each output, at most 16 levels |
| a split | on a column of the input, by a number |
| trees | as many for each class, the classes in turn |
| the rest | a known objective for as many classes as the model has |

Then it is written anew from what was checked alone (`rewrite_text`): what the libraries keep besides (settings, paths of files,
importances, offsets into the text) is dropped, at saving and again at loading. The numbers stay as they were written, so a
loaded model predicts what the saved one did.

*What is refused*: splits on categories, linear trees, trees of CatBoost that are not symmetric, objectives of one's own, other
boosters than trees. The message says so when the model is saved.

Design notes. `ask_library` imports a library when it is first needed: none of them is a dependency of labeldp.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from labeldp.arrays import Floats
from labeldp.errors import Described, LabelDPError, MissingExtraError, invalid
from labeldp.release.templates import change_parts, is_owners, walk_parts
from labeldp.untrusted import parse_json

OWNER = "BoosterClassifier"
#: The class of each library that is fitted, by the library's name.
CLASSIFIERS = {"lightgbm": "LGBMClassifier", "xgboost": "XGBClassifier", "catboost": "CatBoostClassifier"}
#: By which settings each library is silent: of those on one line it takes one alone.
SILENT: dict[str, tuple[dict[str, Any], ...]] = {
    "lightgbm": ({"verbose": -1, "verbosity": -1},),
    "xgboost": ({"verbosity": 0},),
    "catboost": (
        {"verbose": False, "silent": True, "logging_level": "Silent", "verbose_eval": False},
        {"allow_writing_files": False},
    ),
}
#: CatBoost's own limit.
DEEPEST = 16
#: Brackets inside brackets of the libraries' JSON.
DEPTH = 32
#: Bytes of a text: a hundred thousand trees.
MOST_TEXT = 512 * 2**20
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


class BoosterClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A classifier of LightGBM, XGBoost or CatBoost that is a text, so that it can be saved.

    A fitted one of the library is turned into this by `pack_boosters`, and that is how most come about.

    Parameters
    ----------
    library : {"lightgbm", "xgboost", "catboost"}
        Which one.
    params : dict, optional
        Plain settings of the library's classifier, which `fit` makes.

    Attributes
    ----------
    text_ : str
        The trees, in the library's own format, less what does not predict.
    classes_, n_features_in_ : as always
    """

    text_: str
    classes_: npt.NDArray[Any]
    n_features_in_: int

    def __init__(self, library: str = "lightgbm", *, params: Mapping[str, Any] | None = None) -> None:
        self.library = library
        self.params = params

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> BoosterClassifier:
        """Fit the library's own classifier, and keep its trees."""
        self.classes_, codes = np.unique(np.asarray(y), return_inverse=True)  # XGBoost takes no other labels than codes
        trained = make_classifier(self.library, self.params).fit(X, codes, sample_weight=sample_weight)
        packed = pack_booster(trained)
        self.text_, self.n_features_in_ = packed.text_, packed.n_features_in_
        self.__dict__.pop("_trees", None)
        return self

    def check_fit(self, X: Any, *, n_classes: int, n_rows: int | None = None) -> None:
        """Refuse a library that is not known or not there (`labeldp.learn.rehearsal`); what X must be is the library's matter."""
        make_classifier(self.library, self.params)

    def predict_proba(self, X: Any) -> Floats:
        """Return class probabilities (n, K), in the order of `classes_`."""
        check_is_fitted(self, "text_")
        rows = validate_data(
            self, X, accept_sparse="csr", ensure_all_finite="allow-nan", dtype=[np.float64, np.float32], reset=False
        )
        if not hasattr(self, "_trees"):
            self._trees = FORMATS[self.library].read(self.check())
        raw = np.asarray(self._trees(rows), np.float64)
        answer: Floats = np.column_stack([1 - raw, raw]) if raw.ndim == 1 else raw
        return answer

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the likeliest class of each row."""
        best = self.predict_proba(X).argmax(axis=1)
        labels: npt.NDArray[Any] = np.asarray(self.classes_)[best]
        return labels

    def check(self) -> str:
        """Return the text as it is given to the library: written anew from what was checked, or raise a ValueError."""
        if self.library not in FORMATS or not isinstance(self.text_, str):
            raise ValueError("a booster of no known library")
        return rewrite_text(self.library, self.text_, n_classes=len(self.classes_), n_features=int(self.n_features_in_))

    def __getstate__(self) -> dict[str, Any]:
        """Return what is stored: not the library's own object."""
        state: dict[str, Any] = dict(super().__getstate__())
        state.pop("_trees", None)
        return state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tags.input_tags.allow_nan = True
        return tags


def make_classifier(library: str, params: Mapping[str, Any] | None) -> Any:
    """Return an unfitted classifier of a library, quiet, that writes no files."""
    if library not in CLASSIFIERS:
        raise invalid(OWNER, "library", f"be one of {', '.join(CLASSIFIERS)}", got=library)
    quiet = {name: silent[name] for silent in SILENT[library] for name in [next(iter(silent))]}
    return getattr(ask_library(library), CLASSIFIERS[library])(**{**quiet, **(params or {})})


def ask_library(name: str) -> Any:
    """Return the module of a library, or say how to get it."""
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingExtraError(f"{OWNER}: this model needs {name}. Install it: pip install {name}.") from error


# ------------------------------------------------------------------------------------------------ from libraries


def hush(template: Any) -> None:
    """Make the parts of an estimator that are of these libraries silent, in place, and write no files.

    They print counts of the labels (LightGBM), or losses and a folder `catboost_info` of them (CatBoost), without being asked to.
    """
    for part, _ in walk_parts(template):
        for silent in SILENT.get(_ancestry(part), ()):
            said = part.get_params(deep=False)
            name = next((one for one in silent if said.get(one) is not None), next(iter(silent)))
            part.set_params(**{name: silent[name]})


def _ancestry(part: Any) -> str:
    """Return the library of a class, or of what it is derived from; "" for none of them."""
    modules = (base.__module__.partition(".")[0] for base in type(part).__mro__)
    return next((name for name in modules if name in CLASSIFIERS and hasattr(part, "set_params")), "")


def library_of(model: Any) -> str | None:
    """Return which library a classifier is of, or None; a class derived from it may be anything."""
    library = type(model).__module__.partition(".")[0]
    return library if CLASSIFIERS.get(library) == type(model).__name__ else None


def pack_boosters(model: Any) -> Any:
    """Return a model with every booster that it holds, at any depth of its own attributes, as a `BoosterClassifier`.

    Nothing is changed in place: what holds a booster is copied. Fitted ones become fitted ones, templates templates.
    """
    return change_parts(model, lambda part: part if library_of(part) is None else pack_booster(part))


def pack_booster(model: Any) -> BoosterClassifier:
    """Return one classifier of a library, fitted or not, as a text; what cannot be kept is refused."""
    library = library_of(model)
    assert library is not None
    settings = {name: value for name, value in model.get_params().items() if value is not None and not is_owners(name)}
    settings.pop("silent", None)
    # NaN is how XGBoost says "missing"; it is also the default.
    settings = {name: value for name, value in settings.items() if value == value}  # noqa: PLR0124 - NaN alone differs
    try:
        settings = json.loads(json.dumps(settings, default=lambda one: one.item()))
    except (TypeError, ValueError, AttributeError):
        raise _refuse("have settings that are plain values", "a setting of another kind") from None
    packed = BoosterClassifier(library, params=settings)
    if not is_fitted(model):
        return packed
    packed.classes_, packed.n_features_in_ = np.asarray(model.classes_), int(model.n_features_in_)
    packed.text_ = FORMATS[library].write(model)
    try:
        packed.text_ = packed.check()
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise _refuse("be made of plain trees", f"{library} with {error}") from error
    return packed


def is_fitted(model: Any) -> bool:
    """Whether a library's classifier has learned something: each of them says it in its own way."""
    if library_of(model) == "catboost":
        return bool(model.is_fitted())
    return bool(model.__sklearn_is_fitted__())


def _refuse(must: str, got: str) -> LabelDPError:
    fix = (
        "Save it without categories, linear trees or an objective of your own: encode categories as numbers "
        "(labeldp.learn.TableEncoder), or save it by the library's own means."
    )
    return invalid("save_model", "model", must, got=Described(got), fix=fix)


# ------------------------------------------------------------------------------------------------ one text, checked


def rewrite_text(library: str, text: str, *, n_classes: int, n_features: int) -> str:
    """Return a text of a library's format made from the checked parts of another, or raise a ValueError."""
    _require(n_classes >= 2 and n_features >= 1, "a number of classes or columns")
    return FORMATS[library].rewrite(text, n_classes, n_features)


def _require(holds: bool, what: str) -> None:  # noqa: FBT001 - one statement to read, one thing to say
    if not holds:
        raise ValueError(f"{what} that cannot be right")


def _check_nodes(left: Sequence[int], right: Sequence[int], inner: Iterable[int]) -> None:
    """Refuse children that do not come after their parent, are not there, or have two parents."""
    seen: set[int] = set()
    for node in inner:
        for child in (left[node], right[node]):
            _require(node < child < len(left) and child not in seen, "a child of a node")
            seen.add(child)


def _whole(value: Any) -> int:
    _require(isinstance(value, int) and not isinstance(value, bool), "a whole number")
    return int(value)


def _whole_text(value: Any) -> int:
    _require(isinstance(value, str) and re.fullmatch(r"-?\d{1,9}", value) is not None, "a whole number")
    return int(value)


def _number(value: Any) -> float:
    _require(isinstance(value, (int, float)) and not isinstance(value, bool) and np.isfinite(value), "a number")
    return float(value)


# LightGBM ----------------------------------------------------------------------------------------


def _write_lightgbm(model: Any) -> str:
    text: str = model.booster_.model_to_string(num_iteration=-1)
    return text


def _rewrite_lightgbm(text: str, n_classes: int, n_features: int) -> str:
    """Lines of `name=values`: a head, then trees, each after a line `Tree=number`, then what does not predict."""
    body, end, _ = text.partition("\nend of trees\n")
    _require(bool(end), "a text without an end")
    head, *trees = re.split(r"^Tree=\d+$", body, flags=re.MULTILINE)
    facts = _read_lines(head)
    per_round = 1 if n_classes == 2 else n_classes
    _require(head.startswith("tree\n"), "a beginning")
    _require(_whole_text(facts.get("num_class")) == _whole_text(facts.get("num_tree_per_iteration")), "trees")
    _require(_whole_text(facts.get("num_class")) == per_round, "a number of classes")
    _require(_whole_text(facts.get("max_feature_idx")) == n_features - 1, "a number of columns")
    objective = facts.get("objective", "")
    allowed = rf"binary sigmoid:{NUMBER.pattern}" if n_classes == 2 else f"multiclass num_class:{n_classes}"
    _require(re.fullmatch(allowed, objective) is not None, "an objective")
    _require(bool(trees) and len(trees) % per_round == 0, "a number of trees")
    lines = ["tree", "version=v4", f"num_class={per_round}", f"num_tree_per_iteration={per_round}", "label_index=0"]
    lines += [f"max_feature_idx={n_features - 1}", f"objective={objective}"]
    lines += ["average_output"] if re.search(r"^average_output$", head, flags=re.MULTILINE) else []
    lines.append("feature_names=" + " ".join(f"Column_{place}" for place in range(n_features)))
    lines.append("feature_infos=" + " ".join(["[-1:1]"] * n_features))
    for number, tree in enumerate(trees):
        lines += ["", f"Tree={number}", *_rewrite_lightgbm_tree(_read_lines(tree), n_features), ""]
    return "\n".join([*lines, "", "end of trees", ""])


def _rewrite_lightgbm_tree(facts: Mapping[str, str], n_features: int) -> list[str]:
    """Return the lines of one tree. Child c >= 0 is inner node c, and c < 0 is leaf -c - 1."""
    leaves = _whole_text(facts.get("num_leaves"))
    _require(leaves >= 1, "a number of leaves")
    _require(facts.get("num_cat") == "0" and facts.get("is_linear", "0") == "0", "a tree of categories or of lines")
    names = {"leaf_value": leaves}
    if leaves > 1:
        names |= dict.fromkeys(("split_feature", "threshold", "decision_type", "left_child", "right_child"), leaves - 1)
    cells = {name: facts.get(name, "").split() for name in names}
    for name, count in names.items():
        _require(len(cells[name]) == count, f"a number of cells of {name}")
        _require(all(NUMBER.fullmatch(cell) is not None for cell in cells[name]), f"a cell of {name}")
    if leaves > 1:
        _require(all(0 <= _whole_text(cell) < n_features for cell in cells["split_feature"]), "a column of a split")
        # Bit 0 says categories, bit 1 where missing values go, the next two what counts as missing.
        _require(all(0 <= _whole_text(c) < 16 and int(c) % 2 == 0 for c in cells["decision_type"]), "a kind of split")
        places = [
            [c if c >= 0 else leaves - 2 - c for c in map(_whole_text, cells[name])]
            for name in ("left_child", "right_child")
        ]
        ends = [0] * leaves  # leaves as nodes after all inner ones, so that one rule holds for both
        _check_nodes([*places[0], *ends], [*places[1], *ends], range(leaves - 1))
    shrinkage = facts.get("shrinkage", "1")
    _require(NUMBER.fullmatch(shrinkage) is not None, "a shrinkage")
    lines = [f"num_leaves={leaves}", "num_cat=0", *(f"{name}={' '.join(cells[name])}" for name in sorted(names))]
    # Sums that prediction does not read, and that the reader wants.
    zeros = {"leaf_weight": leaves, "leaf_count": leaves}
    zeros |= dict.fromkeys(("split_gain", "internal_value", "internal_weight", "internal_count"), leaves - 1)
    lines += [f"{name}={' '.join(['0'] * count)}" for name, count in zeros.items() if count]
    return [*lines, "is_linear=0", f"shrinkage={shrinkage}"]


def _read_lines(text: str) -> dict[str, str]:
    pairs = [(line.partition("=")[0], line.partition("=")[2]) for line in text.splitlines() if "=" in line]
    facts = dict(pairs)
    _require(len(facts) == len(pairs), "a line given twice")
    return facts


def _read_lightgbm(text: str) -> Callable[[Any], Any]:
    return ask_library("lightgbm").Booster(model_str=text).predict  # type: ignore[no-any-return]


# XGBoost -----------------------------------------------------------------------------------------


def _write_xgboost(model: Any) -> str:
    text: str = model.get_booster().save_raw("json").decode()
    return text


def _rewrite_xgboost(text: str, n_classes: int, n_features: int) -> str:
    """JSON: a list of trees, each with one array per property of nodes; `tree_info` has the class of each tree."""
    whole = parse_json(text, most_bytes=MOST_TEXT, most_depth=DEPTH)
    learner = whole["learner"]
    booster, shape, objective = learner["gradient_booster"], learner["learner_model_param"], learner["objective"]
    per_round = 1 if n_classes == 2 else n_classes
    name = "binary:logistic" if n_classes == 2 else "multi:softprob"
    _require(booster["name"] == "gbtree" and objective["name"] == name, "a booster or an objective")
    _require(_whole_text(shape["num_feature"]) == n_features, "a number of columns")
    _require(_whole_text(shape["num_class"]) == (0 if per_round == 1 else n_classes), "a number of classes")
    _require(_whole_text(shape.get("num_target", "1")) == 1, "a number of targets")
    scores = re.fullmatch(r"\[?([^\[\]]*)\]?", shape["base_score"])
    _require(scores is not None and all(NUMBER.fullmatch(one) for one in scores[1].split(",")), "a first score")
    _require(scores is not None and len(scores[1].split(",")) in (1, per_round), "a first score")
    model = booster["model"]
    forest = _whole_text(model["gbtree_model_param"].get("num_parallel_tree", "1"))
    trees = [_rewrite_xgboost_tree(tree, number, n_features) for number, tree in enumerate(model["trees"])]
    _require(forest >= 1 and bool(trees) and len(trees) % (per_round * forest) == 0, "a number of trees")
    rounds = len(trees) // (per_round * forest)
    classes = [k for _ in range(rounds) for k in range(per_round) for _ in range(forest)]
    _require([_whole(k) for k in model["tree_info"]] == classes, "a class of a tree")
    kind = {"reg_loss_param": {"scale_pos_weight": "1"}}
    kind = kind if per_round == 1 else {"softmax_multiclass_param": {"num_class": str(n_classes)}}
    version = [_whole(part) for part in whole["version"]]
    _require(len(version) == 3 and version[0] >= 1, "a version")
    param = {"num_trees": str(len(trees)), "num_parallel_tree": str(forest)}
    steps = [round_ * per_round * forest for round_ in range(rounds + 1)]
    inner: dict[str, Any] = {"gbtree_model_param": param, "iteration_indptr": steps, "tree_info": classes}
    if "cats" in model:
        inner["cats"] = {"enc": [], "feature_segments": [], "sorted_idx": []}
    shape = {"base_score": shape["base_score"], "boost_from_average": "1", "num_class": shape["num_class"]}
    shape |= {"num_feature": str(n_features), "num_target": "1"}
    made: dict[str, Any] = {"attributes": {}, "feature_names": [], "feature_types": [], "learner_model_param": shape}
    made |= {"gradient_booster": {"name": "gbtree", "model": {**inner, "trees": trees}}}
    made |= {"objective": {"name": name, **kind}}
    return json.dumps({"learner": made, "version": version}, allow_nan=False)


def _rewrite_xgboost_tree(tree: Any, number: int, n_features: int) -> dict[str, Any]:
    """Return one tree; a node whose left child is -1 is a leaf, and its value is its split condition."""
    left, right = ([_whole(c) for c in tree[name]] for name in ("left_children", "right_children"))
    count = len(left)
    _require(0 < count < 2**31 and len(right) == count, "a number of nodes")
    inner = [node for node in range(count) if left[node] != -1]
    _require(all(right[node] == -1 for node in range(count) if left[node] == -1), "a leaf")
    _check_nodes(left, right, inner)
    columns, values = [_whole(c) for c in tree["split_indices"]], [_number(v) for v in tree["split_conditions"]]
    defaults = [int(_whole(int(d))) for d in tree["default_left"]]
    _require(len(columns) == len(values) == len(defaults) == count, "a number of nodes")
    _require(all(0 <= columns[node] < n_features for node in inner), "a column of a split")
    _require(all(d in (0, 1) for d in defaults), "a side for missing values")
    _require(not any(tree.get("split_type", ())) and not tree.get("categories"), "a split on categories")
    parents = [2**31 - 1] * count
    for node in inner:
        parents[left[node]] = parents[right[node]] = node
    # Nodes that nothing leads to were cut off when the tree was pruned: they are leaves that no row reaches.
    made: dict[str, Any] = {"id": number, "left_children": left, "right_children": right, "parents": parents}
    made |= {"split_indices": [c if left[n] != -1 else 0 for n, c in enumerate(columns)], "split_conditions": values}
    made |= {"default_left": defaults, "split_type": [0] * count, "base_weights": values}
    made |= {"loss_changes": [0.0] * count, "sum_hessian": [0.0] * count}
    made |= {name: [] for name in ("categories", "categories_nodes", "categories_segments", "categories_sizes")}
    shape = {"num_deleted": "0", "num_feature": str(n_features), "num_nodes": str(count), "size_leaf_vector": "1"}
    return {**made, "tree_param": shape}


def _read_xgboost(text: str) -> Callable[[Any], Any]:
    library = ask_library("xgboost")
    booster = library.Booster()
    booster.load_model(bytearray(text.encode()))
    return lambda rows: booster.predict(library.DMatrix(rows))


# CatBoost ----------------------------------------------------------------------------------------


def _write_catboost(model: Any) -> str:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "model.json"
        model.save_model(str(place), format="json")
        return place.read_text(encoding="utf-8")


def _rewrite_catboost(text: str, n_classes: int, n_features: int) -> str:
    """JSON: trees whose nodes of one level share one split, so that leaf number l of depth d is d answers in bits."""
    whole = parse_json(text, most_bytes=MOST_TEXT, most_depth=DEPTH)
    outputs = 1 if n_classes == 2 else n_classes
    loss = whole["model_info"]["params"]["loss_function"]["type"]
    _require(loss == ("Logloss" if outputs == 1 else "MultiClass"), "an objective")
    info = whole["features_info"]
    _require(not any(info.get(kind) for kind in info if kind != "float_features"), "a split on categories or texts")
    columns = [_rewrite_catboost_column(column) for column in info["float_features"]]
    _require([c["flat_feature_index"] for c in columns] == [c["feature_index"] for c in columns], "a column's place")
    _require([c["feature_index"] for c in columns] == list(range(len(columns))), "a column's place")
    _require(len(columns) == n_features, "a number of columns")
    # A split is numbered by its border, all columns' borders one after the other.
    first = np.concatenate([[0], np.cumsum([len(c["borders"]) for c in columns])]).tolist()
    trees = [_rewrite_catboost_tree(tree, columns, first, outputs) for tree in whole.get("oblivious_trees", [])]
    _require(bool(trees), "trees that are not symmetric")
    scale, bias = whole["scale_and_bias"]
    bias = [_number(b) for b in bias]
    _require(len(bias) == outputs, "a first score")
    names = list(range(n_classes))
    labels = {"class_label_type": "Integer", "class_names": names, "class_to_label": names, "classes_count": 0}
    params = {"loss_function": {"type": loss, "params": {}}, "flat_params": {"loss_function": loss}}
    made: dict[str, Any] = {"features_info": {"float_features": columns}, "oblivious_trees": trees}
    made |= {"scale_and_bias": [_number(scale), bias]}
    made |= {"model_info": {"class_params": labels, "params": params}}
    return json.dumps(made, allow_nan=False)


def _rewrite_catboost_column(column: Any) -> dict[str, Any]:
    borders = [_number(b) for b in column["borders"]]
    _require(all(a < b for a, b in pairwise(borders)), "borders of a column")
    _require(column["nan_value_treatment"] in ("AsIs", "AsFalse", "AsTrue"), "a side for missing values")
    made: dict[str, Any] = {"borders": borders, "feature_id": "", "has_nans": bool(column["has_nans"])}
    made |= {name: _whole(column[name]) for name in ("feature_index", "flat_feature_index")}
    return {**made, "nan_value_treatment": column["nan_value_treatment"]}


def _rewrite_catboost_tree(
    tree: Any, columns: Sequence[Mapping[str, Any]], first: Sequence[int], outputs: int
) -> dict[str, Any]:
    splits, values = tree.get("splits") or [], [_number(v) for v in tree["leaf_values"]]
    _require(len(splits) <= DEEPEST and len(values) == outputs * 2 ** len(splits), "a number of leaves")
    made = []
    for split in splits:
        _require(split["split_type"] == "FloatFeature", "a split on categories or texts")
        place = _whole(split["float_feature_index"])
        _require(0 <= place < len(columns), "a column of a split")
        borders = columns[place]["borders"]
        border = _number(split["border"])
        _require(border in borders, "a border of a split")
        made.append(
            {
                "border": border,
                "float_feature_index": place,
                "split_index": first[place] + borders.index(border),
                "split_type": "FloatFeature",
            }
        )
    return {"splits": made, "leaf_values": values, "leaf_weights": [0.0] * 2 ** len(splits)}


def _read_catboost(text: str) -> Callable[[Any], Any]:
    model = ask_library("catboost").CatBoostClassifier()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "model.json"
        place.write_text(text, encoding="utf-8")
        model.load_model(str(place), format="json")
    return model.predict_proba  # type: ignore[no-any-return]


class _Format:
    """How a library's trees become text, a checked text, and a function from rows to probabilities."""

    def __init__(
        self,
        write: Callable[[Any], str],
        rewrite: Callable[[str, int, int], str],
        read: Callable[[str], Callable[[Any], Any]],
    ) -> None:
        self.write, self.rewrite, self.read = write, rewrite, read


FORMATS = {
    "lightgbm": _Format(_write_lightgbm, _rewrite_lightgbm, _read_lightgbm),
    "xgboost": _Format(_write_xgboost, _rewrite_xgboost, _read_xgboost),
    "catboost": _Format(_write_catboost, _rewrite_catboost, _read_catboost),
}
