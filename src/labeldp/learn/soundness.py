"""Arrays of a loaded model, checked before compiled code believes them.

>>> from sklearn.tree import DecisionTreeClassifier
>>> check_model(DecisionTreeClassifier().fit([[0.0], [1.0]], [0, 1]))

A model file names types, and its arrays fill them. Most estimators predict with NumPy, which checks every index. Some do not:
compiled loops follow a tree from a node to its child, or read as many support vectors as another array says there are. With
edited arrays they never end, or read memory that is not theirs, and the interpreter is gone. scikit-learn does not check what
it loads (scikit-learn/scikit-learn#34558), so `load_model` does, over everything that can be reached from the model:

| what | what must hold |
|---|---|
| trees (also in forests, gradient boosting, isolation forests) | every inner node has two children after it, each node is a child at most once, features are columns of the input, thresholds are numbers, as many nodes as are counted |
| trees of histogram gradient boosting | the same, and the sets of categories that a node names are there |
| support vector machines | as many vectors, coefficients and intercepts as there are classes and vectors counted; no sparse ones |
| k-means | centres have as many columns as the input |
| boosters of other libraries | what `labeldp.learn.boosters` says |
| factorised ratings | factors for every id and for one unknown; ids, values and factors of their kinds |
| random states | a position inside the state |
| whatever has an `input` (vectorizers of texts) | it is the texts, and no names of files, which prediction would open |

Children after their parent make every path rise, so it ends after at most as many steps as there are nodes. Sparse matrices
and nodes of trees that are built in another way than skops writes them are refused unseen (`check_schema`): a tree copies its
nodes and values while it is built, and takes the length of an array without asking whether it has one.

Everything else goes wrong in Python, and is found by asking. `save_model` asks a model about a few plain rows
(`list_answers`) and writes down what it answered; `load_model` asks the same again (`check_answers`). An array of another
shape or kind then fails at loading. Rows of zeros are not for everyone (a column of texts, a logarithm), which is why a
model is asked only what it answered before it was saved.

Settings that name a place, a seed or who is told are taken off before any of this (`labeldp.release.templates.forget_owner`).

Not checked: other settings. A number of iterations or of threads that a file asks for is obeyed by `transform` of some
estimators, so a forged file can still be slow; and a model can always be wrong.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.ensemble import BaseEnsemble
from sklearn.ensemble._gb import BaseGradientBoosting
from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor
from sklearn.svm._base import BaseLibSVM
from sklearn.tree import BaseDecisionTree
from sklearn.tree._tree import Tree

from labeldp.errors import MissingExtraError, hide_warnings
from labeldp.learn.boosters import BoosterClassifier
from labeldp.learn.tables import TableEncoder

TREE = "sklearn.tree._tree.Tree"
#: Loaders of skops that no model of ours needs: each builds something whose arrays compiled code believes, or calls it.
REFUSED_LOADERS = ("SparseMatrixNode", "MethodNode", "OperatorFuncNode", "PartialNode")
#: What a model is asked before it is saved and after it is loaded, as far as it has them.
QUESTIONS = ("predict", "predict_proba", "decision_function", "transform")
#: The number in all columns of each row that a model is asked about.
ASKED = (0.0, 1.0, -1.0, 1000.0, -1000.0)
#: Columns of the rows that a model is asked about: five rows of so many are 40 MiB.
MOST_FEATURES = 2**20


def check_schema(node: Any, read_array: Callable[[str], Any]) -> None:
    """Refuse a schema of skops with parts whose very construction reads beyond an array.

    `read_array` returns a stored array by the name of its file. `Tree(n_features, n_classes, n_outputs)` reads `n_outputs`
    numbers of `n_classes`, whatever its length: it must be built from these three, and they must agree.
    """
    stack, parts, checked = [node], list[dict[str, Any]](), dict[Any, Any]()
    while stack:
        part = stack.pop()
        if isinstance(part, list):
            stack += part
        if not isinstance(part, dict):
            continue
        stack += part.values()
        parts.append(part)
        loader = part.get("__loader__")
        if loader in REFUSED_LOADERS:
            raise ValueError(f"it has a part of a kind that labeldp does not write, {loader}")
        named = f"{part.get('__module__')}.{part.get('__class__')}"
        if (loader == "TreeNode") != (named == TREE) and loader is not None:
            raise ValueError("it has a tree that is built in another way than scikit-learn's")
        if loader == "TreeNode":
            args, state = part["__reduce__"]["args"], part["content"]
            _, n_classes, n_outputs = args["content"]
            nodes, values = state["content"]["nodes"], state["content"]["values"]
            checked |= {one.get("__id__"): one for one in (args, n_classes, n_outputs, state, nodes, values)}
            _require(n_outputs["__loader__"] == "JsonNode" and n_outputs["content"].isdigit(), "a tree's outputs")
            for one in (n_classes, nodes, values):
                _require(one["__loader__"] == "NdArrayNode" and one["type"] == "numpy", "a tree's arrays")
            counts = read_array(n_classes["file"])
            _require(
                counts.ndim == 1 and counts.dtype.kind == "i" and len(counts) == int(n_outputs["content"]) > 0,
                "a tree's outputs",
            )
            _require(bool((counts > 0).all() and (counts < 2**31).all()), "a tree's classes")
            # Each is copied as it is built: a number without an axis has no length, and reading that ends the process.
            _require(read_array(nodes["file"]).ndim == 1, "a tree's nodes")
            _require(read_array(values["file"]).ndim == 3, "a tree's values")
    # skops builds one object for all parts of one number, from the first of them: what was checked must be what is built.
    _require(all(checked.get(part.get("__id__"), part) == part for part in parts), "a number of a part of a tree")


def check_model(model: Any) -> None:
    """Refuse, with a ValueError, a model with arrays that compiled code would follow beyond their ends or for ever."""
    _require(find_file_reader(model) is None, "a part that opens files")
    parts = list(_walk(model))
    for part in parts:
        if isinstance(part, Tree):
            _check_tree(part)
        elif isinstance(part, BaseDecisionTree) and hasattr(part, "tree_"):
            _require(part.tree_.n_features == part.n_features_in_, "a tree's number of features")
        elif isinstance(part, TreePredictor):
            _check_predictor(part)
        elif isinstance(part, BaseLibSVM) and hasattr(part, "support_vectors_"):
            _check_vectors(part)
        elif isinstance(part, (KMeans, MiniBatchKMeans)) and hasattr(part, "cluster_centers_"):
            centres = part.cluster_centers_
            _require(
                centres.ndim == 2 and len(centres) > 0 and centres.shape[1] == part.n_features_in_, "k-means' centres"
            )
            _require(0 < int(getattr(part, "_n_threads", 1)) <= 1024, "a number of threads")
        elif isinstance(
            part, np.random.Generator
        ):  # the one that scikit-learn keeps; its state is two numbers of 128 bits
            _require(type(part.bit_generator) is np.random.PCG64, "a random generator")
        elif isinstance(part, np.random.RandomState):
            state = part.get_state(legacy=False)["state"]
            _require(0 <= int(state["pos"]) <= len(state["key"]), "a random state")
    _check_wholes(parts)


def find_file_reader(model: Any) -> str | None:
    """Return the type of a part of a model that takes names of files, and opens these, in place of texts; None without one.

    Its answers would say what is in files of whoever asks, and a model is asked as soon as it is loaded.
    """
    for part in _walk(model):
        told = getattr(part, "__dict__", {}).get("input", "content")
        if not isinstance(told, str) or told != "content":
            return type(part).__name__
    return None


def _check_wholes(parts: list[Any]) -> None:
    """Check what is made of several of these parts, each of which is sound by itself."""
    for part in parts:
        if isinstance(part, BaseEnsemble) and hasattr(part, "estimators_"):
            _check_ensemble(part)
        elif hasattr(part, "_predictors"):
            _check_boosting(part)
        elif isinstance(part, BoosterClassifier) and hasattr(part, "text_"):
            part.check()
        elif type(part).__name__ == "MatrixFactorisation" and hasattr(part, "user_factors_"):
            _check_factors(part)


def list_answers(model: Any) -> list[str]:
    """Return which of `QUESTIONS` a fitted model answers about a few plain rows.

    >>> from sklearn.preprocessing import StandardScaler
    >>> list_answers(StandardScaler().fit([[0.0], [1.0]]))
    ['transform']
    """
    return [question for question in QUESTIONS if _answers(model, question)]


def _answers(model: Any, question: str) -> bool:
    try:
        _ask(model, question, _make_rows(model))
    except Exception:  # noqa: BLE001 - it takes other rows, or has no such question
        return False
    return True


def check_answers(model: Any, questions: Sequence[str]) -> Any:
    """Return a model; refuse, with a ValueError, one that no longer answers what it answered before it was saved."""
    _require(len(set(questions)) == len(questions), "what the model was asked")
    rows = _make_rows(model) if questions else None
    for question in questions:
        _require(question in QUESTIONS, "what the model was asked")
        try:
            _ask(model, question, rows)
        except MissingExtraError:  # the reader's installation, not the file
            raise
        except Exception as error:
            raise ValueError(f"its `{question}` fails ({type(error).__name__}: {str(error)[:200]})") from error
    return model


def _make_rows(model: Any) -> Any:
    """Return rows to ask about: of the columns of the model's encoder, if it has one, else numbers in its own width."""
    encoder = next(
        (part for part in _walk(model) if isinstance(part, TableEncoder) and hasattr(part, "numbers_")), None
    )
    if encoder is not None:
        numbers = {name: pa.array(ASKED) for name in encoder.numbers_}
        words = {
            name: pa.array([*known, None][:1] * len(ASKED), pa.string()) for name, known in encoder.categories_.items()
        }
        return pa.table(numbers | words)
    # A learner of images or of datasets knows no columns; the transformer in front of it does.
    knows = model if hasattr(model, "n_features_in_") else model.transformer_
    width = int(knows.n_features_in_)
    _require(0 < width <= MOST_FEATURES, "a number of features")
    return np.outer(ASKED, np.ones(width))


def _ask(model: Any, question: str, rows: Any) -> None:
    """Ask about all rows, and about some: an array that happens to have as many rows as were asked about fits no others."""
    # Columns without names, numbers that overflow: nobody reads these answers.
    with hide_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("error", np.exceptions.ComplexWarning)  # no model of real numbers has complex ones inside
        for part in (rows, rows[:3]):
            _require(getattr(model, question)(part).shape[0] == part.shape[0], "the number of answers")


def _require(holds: bool, what: str) -> None:  # noqa: FBT001 - one statement to read, one thing to say
    if not holds:
        raise ValueError(f"{what} cannot be right")


def _walk(model: Any) -> Iterator[Any]:
    """Yield everything that is reached from a model, once."""
    seen: set[int] = set()
    stack = [model]
    while stack:
        part = stack.pop()
        if id(part) in seen or isinstance(part, (str, bytes, int, float, type, type(None))):
            continue
        seen.add(id(part))
        if isinstance(part, np.ndarray):
            stack += part.ravel().tolist() if part.dtype == object else []
            continue
        yield part
        if isinstance(part, dict):
            stack += part.values()
        elif isinstance(part, (list, tuple, set)):
            stack += part
        else:
            stack += list(getattr(part, "__dict__", {}).values())


def _check_paths(left: Any, right: Any, inner: Any) -> None:
    """Refuse children that are not after their parent, not there, or another node's already."""
    places = np.flatnonzero(inner)
    children = np.concatenate([left[inner], right[inner]]).astype(np.int64)
    parents = np.concatenate([places, places])
    _require(bool((children > parents).all() and (children < len(left)).all()), "a child of a tree's node")
    _require(len(np.unique(children)) == len(children), "a node of a tree with two parents")


def _check_tree(tree: Any) -> None:
    _require(tree.node_count == tree.capacity > 0, "a tree's number of nodes")  # what every view of its arrays trusts
    nodes = tree.__getstate__()["nodes"]
    _require(0 <= tree.max_depth <= tree.node_count, "a tree's depth")
    inner = nodes["left_child"] != -1  # what the compiled loop stops at
    _require(bool((nodes["right_child"][~inner] == -1).all()), "a leaf of a tree")
    _check_paths(nodes["left_child"], nodes["right_child"], inner)
    features = nodes["feature"][inner]
    _require(bool((features >= 0).all() and (features < tree.n_features).all()), "a feature of a tree's node")
    # A split on missing values alone has an infinite threshold; none has one that is not a number.
    _require(not np.isnan(nodes["threshold"][inner]).any(), "a threshold of a tree")


def _check_predictor(predictor: Any) -> None:
    nodes = predictor.nodes
    _require(nodes.ndim == 1 and len(nodes) > 0, "a tree's nodes")
    inner = nodes["is_leaf"] == 0
    _check_paths(nodes["left"], nodes["right"], inner)
    _require(not np.isnan(nodes["num_threshold"][inner]).any(), "a threshold of a tree")
    named = nodes["bitset_idx"][inner & (nodes["is_categorical"] != 0)]
    for sets in (predictor.raw_left_cat_bitsets, predictor.binned_left_cat_bitsets):
        _require(sets.ndim == 2 and sets.shape[1] == 8 and sets.dtype == np.uint32, "a tree's sets of categories")
        _require(bool((named < len(sets)).all()), "a tree's set of categories")


def _check_boosting(model: Any) -> None:
    """Histogram gradient boosting: the trees read columns of the input and of the map of categories."""
    known = model._bin_mapper.is_categorical_  # noqa: SLF001 - what its predict reads
    n_features = known.size
    _require(known.ndim == 1 and 0 < n_features == len(model._bin_mapper.bin_thresholds_), "a map of categories")  # noqa: SLF001
    _require(n_features == getattr(model, "_n_features", n_features), "a number of features")
    plain = getattr(model, "_preprocessor", None) is None  # with categories, columns are sorted but as many
    _require(not plain or n_features == model.n_features_in_, "a number of features")
    for stage in model._predictors:  # noqa: SLF001
        for tree in stage:
            _require(isinstance(tree, TreePredictor), "a tree")
            inner = tree.nodes["is_leaf"] == 0
            features = tree.nodes["feature_idx"][inner].astype(np.int64)
            _require(bool((features >= 0).all() and (features < n_features).all()), "a feature of a tree's node")
            categorical = tree.nodes["is_categorical"][inner] != 0
            _require(bool(known[features[categorical]].all()), "a category of a tree's node")


def _check_ensemble(model: Any) -> None:
    """Trees in a forest or in gradient boosting get the input of the whole, which only the whole compares."""
    trees = model.estimators_
    if not isinstance(trees, np.ndarray):  # one by one: NumPy would look into a pipeline, which has a length
        trees = np.empty(len(model.estimators_), dtype=object)
        for place, one in enumerate(model.estimators_):
            trees[place] = one
    if isinstance(model, BaseGradientBoosting):
        # Its loop takes each for a tree without looking, and adds to the columns of the first guess without counting.
        _require(all(isinstance(tree, BaseDecisionTree) for tree in trees.ravel()), "a tree")
        _require(0 < model.n_features_in_ <= MOST_FEATURES, "a number of features")
        first = model._raw_predict_init(np.zeros((1, model.n_features_in_), np.float32))  # noqa: SLF001
        _require(trees.ndim == 2 and first.shape == (1, trees.shape[1]), "a number of trees")
    subsets = getattr(model, "estimators_features_", None)
    if subsets is not None:  # bagging: each has its own columns
        _require(len(subsets) == len(trees), "a number of trees")
    widths = [model.n_features_in_] * trees.size if subsets is None else [len(subset) for subset in subsets]
    for tree, width in zip(trees.ravel(), widths, strict=True):
        if isinstance(tree, BaseDecisionTree):
            _require(isinstance(tree.tree_, Tree) and tree.tree_.n_features == width, "a tree's number of features")


def _check_vectors(model: Any) -> None:
    """Libsvm reads as many vectors, coefficients and intercepts as the counts of each other say."""
    vectors, counts, coefficients = model.support_vectors_, model._n_support, model._dual_coef_  # noqa: SLF001
    plain = all(isinstance(one, np.ndarray) for one in (vectors, counts, coefficients, model.support_))
    _require(plain and not model._sparse, "support vectors")  # noqa: SLF001
    classes = len(model.classes_) if hasattr(model, "classes_") else 2
    pairs = classes * (classes - 1) // 2
    precomputed = model.kernel == "precomputed" or callable(model.kernel)
    number = len(model.support_)
    _require(counts.shape == (classes,) and bool((counts >= 0).all()), "counts of support vectors")
    _require(coefficients.shape == (classes - 1, number) and model._intercept_.shape == (pairs,), "coefficients")
    if hasattr(model, "classes_"):
        _require(int(counts.astype(np.int64).sum()) == number, "counts of support vectors")
    if precomputed:
        inside = (model.support_ >= 0) & (model.support_ < model.shape_fit_[0])
        _require(bool(inside.all()), "places of support vectors")
    else:
        _require(vectors.shape == (number, model.n_features_in_), "support vectors")
    _require(tuple(model.shape_fit_)[-1:] == (model.n_features_in_,), "a number of features")
    for odds in (getattr(model, "_probA", ()), getattr(model, "_probB", ())):
        _require(len(odds) in (0, pairs), "coefficients")


def _check_factors(model: Any) -> None:
    users, items = model.user_factors_, model.item_factors_
    arrays = {"f": (users, items, model.values_), "iU": (model.user_ids_, model.item_ids_)}
    for kinds, several in arrays.items():
        _require(all(isinstance(one, np.ndarray) and one.dtype.kind in kinds for one in several), "numbers of ratings")
    _require(
        all(one.ndim == 1 for one in arrays["iU"]) and model.values_.ndim == 1 and model.values_.size > 1, "ratings"
    )
    _require(np.ndim(model.center_) == 0 and isinstance(model.center_, (float, np.floating)), "a mean rating")
    _require(users.ndim == items.ndim == 3 and users.shape[::2] == items.shape[::2], "factors")
    _require(users.shape[1] == len(model.user_ids_) + 1 and items.shape[1] == len(model.item_ids_) + 1, "factors")
