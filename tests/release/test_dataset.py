"""Examples with what was released of them: nothing but a release goes through, whoever loads it, and lengths stay equal."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse

from labeldp import InformativeResponse, RandomizedResponse, SensitiveLabels, UnbiasedResponse, privatize
from labeldp.errors import LabelDPError
from labeldp.items import Items, is_dataset
from labeldp.release import ReleasedItems

N, K = 60, 4


class Pairs:
    """A dataset of (input, label) as PyTorch's are: map-style, with its labels beside the inputs."""

    def __init__(self, X, y):
        self.X, self.y = list(X), list(y)

    def __len__(self):
        return len(self.X)

    def __getitem__(self, row):
        return self.X[row], self.y[row]


class Keyed(Pairs):
    """Items that are mappings, as tokenizers make them."""

    def __getitem__(self, row):
        return {"ids": self.X[row], "mask": np.ones(2), "labels": self.y[row]}


@pytest.fixture(scope="module")
def labels():
    return np.random.default_rng(0).integers(0, K, N)


@pytest.fixture(scope="module", name="X")
def make_features():
    return np.random.default_rng(1).normal(size=(N, 3))


@pytest.fixture(scope="module")
def release(labels):
    return privatize(SensitiveLabels(labels, classes=range(K)), InformativeResponse(1.0), rng=0)


def walk(value, seen=None):
    """Every object that hangs on a value: what a worker that unpickles it holds."""
    seen = {} if seen is None else seen
    if id(value) in seen:
        return
    seen[id(value)] = value
    yield value
    parts = list(getattr(value, "__dict__", {}).values())
    if isinstance(value, dict):
        parts += [*value.keys(), *value.values()]
    elif isinstance(value, (list, tuple, set)):
        parts += list(value)
    for part in parts:
        yield from walk(part, seen)


def test_a_batch_is_its_rows(release, X):
    data = release.dataset(X)
    order = [5, 0, 59, -1]
    pairs = data.__getitems__(order)
    likelihood = release.channel.likelihood(release.codes)
    for row, pair in zip(order, pairs, strict=True):
        x, said = map(np.asarray, pair)  # tensors, where torch is loaded
        assert x.dtype == said.dtype == np.float32
        assert (x == X[row].astype(np.float32)).all()
        assert (said == likelihood[row].astype(np.float32)).all()
        assert (data[row][1] == said).all()
    assert len(data) == N
    assert (
        repr(data)
        == "<ReleasedItems: SEEDED, NOT PRIVATE; 60 examples with the likelihood of what was released, 4 classes>"
    )
    with pytest.raises(IndexError):
        data[N]


def test_rows_go_with_their_release(release, X):
    rows = np.array([7, 3, 50])
    data = release.take(rows).dataset(X[rows])
    assert all((data[k][1] == release.dataset(X)[row][1]).all() for k, row in enumerate(rows))


def test_many_classes_are_made_batch_by_batch(monkeypatch):
    """What is large is never whole: the evidence of a batch is the same rows, made when they are asked for."""
    from labeldp.channel import evidence

    labels = np.random.default_rng(0).integers(0, 50, 30)
    release = privatize(SensitiveLabels(labels, classes=range(50)), InformativeResponse(1.0), rng=0)
    whole = release.dataset(np.zeros((30, 1)))
    expected = [whole[row][1] for row in range(30)]
    monkeypatch.setattr(evidence, "SMALL", 100)
    data = release.dataset(np.zeros((30, 1)))
    assert all((data[row][1] == expected[row]).all() for row in (0, 29, 4))
    assert data._whole is None


def test_unbiased_targets_and_numbers(labels, X):
    release = privatize(SensitiveLabels(labels, classes=range(K)), RandomizedResponse(1.0), rng=0)
    data = ReleasedItems(X, release, evidence="unbiased")
    expected = release.channel.unbiased_targets(release.codes).astype(np.float32)
    assert all((data[row][1] == expected[row]).all() for row in range(N))
    numbers = SensitiveLabels(labels.astype(float), bounds=(0.0, K))
    released = privatize(numbers, UnbiasedResponse(1.0, bounds=(0.0, K)), rng=0)
    assert [float(value) for _, value in released.dataset(X).__getitems__([0, 4])] == [
        float(np.float32(released.values[row])) for row in (0, 4)
    ]
    with pytest.raises(LabelDPError, match="'values' for numbers"):
        released.dataset(X, evidence="likelihood")
    with pytest.raises(LabelDPError, match="'values' for numbers"):
        release.dataset(X, evidence="values")
    prior = np.random.default_rng(0).dirichlet(np.ones(K), size=N)
    blocks = privatize(SensitiveLabels(labels, classes=range(K)), InformativeResponse(1.0), prior=prior, rng=0)
    with pytest.raises(LabelDPError, match="no unbiased estimate"):
        blocks.dataset(X, evidence="unbiased")


# ------------------------------------------------------------------------------------------------------- no raw label


def test_a_label_beside_the_input_is_left_behind(release, X, labels):
    secret = [f"secret-{label}" for label in labels]
    data = release.dataset(Pairs(X, secret))
    items = [*data.__getitems__(range(N)), data[3]]
    assert not any(isinstance(part, str) for item in items for part in walk(item))
    assert (data[3][0] == X[3].astype(np.float32)).all()
    assert not hasattr(data, "y")
    assert "secret" not in repr(data)


def nested_items(X, labels):
    """Items whose input has parts of its own, and the label among them, by what they are."""
    pandas = pytest.importorskip("pandas", reason="rows of a data frame")
    table = pandas.DataFrame(X).assign(label=labels)
    rows = np.array([(1.0, label) for label in labels], dtype=[("x", "f4"), ("label", "i8")])
    objects = np.empty((N, 2), object)
    objects[:, 0], objects[:, 1] = list(X), labels
    return {
        "a vector and a label": [((X[i], labels[i]), i) for i in range(N)],
        "a number and a label": [((1.5, labels[i]), i) for i in range(N)],
        "a list of them": [([1.5, labels[i]], i) for i in range(N)],
        "an image and its mask": [((X[i], np.full(3, labels[i])), i) for i in range(N)],
        "a mapping": [({"x": X[i], "label": labels[i]}, i) for i in range(N)],
        "a row of a table": [table.iloc[i] for i in range(N)],
        "a table of one row": [table.iloc[i : i + 1] for i in range(N)],
        "a row with fields": [rows[i] for i in range(N)],
        "an array of objects": [objects[i] for i in range(N)],
        "lists of two lengths": [([[1.0, 2.0], [labels[i]]], i) for i in range(N)],
    }


def test_an_input_with_parts_of_its_own_is_refused(release, X, labels):
    """The first part of ((x, label), i) is no input, and nor is a row of a table that has its label in it."""
    for name, items in nested_items(X, labels).items():
        data = release.dataset(items)
        for read in (lambda data: data[0], lambda data: data.__getitems__([0, 1])):
            with pytest.raises(LabelDPError, match="which has parts of its own"):
                pytest.fail(f"{name}: {read(data)}")


def test_numbers_that_are_named_are_an_input(release, X, labels):
    data = release.dataset(Pairs(X.tolist(), labels), take=0)
    assert (data[3][0] == X[3].astype(np.float32)).all()
    with pytest.raises(LabelDPError, match="which has parts of its own"):
        release.dataset(Pairs([(row, row) for row in X], labels), take=0)[0]
    with pytest.raises(LabelDPError, match="items that are numbers"):
        release.dataset(Pairs([[[1.0, 2.0], [3.0]]] * N, labels), take=0)[0]


@pytest.mark.parametrize("kind", [int, float, bool, np.int64, np.asarray])
@pytest.mark.parametrize("sequence", [tuple, list])
def test_items_that_begin_with_a_number_do_not_give_their_label_away(release, X, labels, kind, sequence):
    """Before: of (label, input) the raw label was handed out as the input."""
    items = [sequence([kind(int(label)), row]) for label, row in zip(labels, X, strict=True)]
    with pytest.raises(LabelDPError, match=r"begins with a number, of 2 parts\. .* take=1 for \(label, input\)"):
        release.dataset(items)[0]
    assert (release.dataset(items, take=1)[3][0] == X[3].astype(np.float32)).all()
    assert release.dataset(items, take=0)[3][0] == int(
        labels[3]
    )  # who says so is believed: a feature may be one number


def test_items_that_begin_with_a_text_do_not_give_their_label_away(release, X, labels):
    """Before: of ("cat", image) the word was handed out as the input. A text beside a code is the input."""
    for other in (X[0], "a review", [1.0, 2.0]):
        items = [(str(label), other) for label in labels]
        with pytest.raises(LabelDPError, match=r"begins with a text, of 2 parts\. .* take=1 for \(label, input\)"):
            Items(items, owner="example")[0]
        assert Items(items, owner="example", take=0)[3] == str(labels[3])
    assert Items([("a review", int(label)) for label in labels], owner="example")[3] == "a review"
    assert Items([("a review",)] * N, owner="example")[3] == "a review"


def test_what_is_pickled_holds_the_release_and_no_label(release, X, labels):
    """Of features alone, a worker gets what a receiver of the release has: neither the labels nor a key."""
    data = release.dataset(X)
    assert len(data[0]) == 2  # the whole likelihood is made here, and stays here
    box = pickle.dumps(data)
    copy = pickle.loads(box)  # our own object in our own test
    assert copy._whole is None
    assert all((copy[row][1] == data[row][1]).all() for row in range(N))
    arrays = [value for value in walk(copy) if isinstance(value, np.ndarray) and len(value) == N and value.ndim == 1]
    assert arrays  # the codes
    assert not any((array == labels).all() for array in arrays)
    kinds = {type(value).__name__ for value in walk(copy)}
    assert not kinds & {"SensitiveLabels", "NoiseKey", "Ledger"}


def test_a_table_with_its_label_column_is_refused(release, X, labels):
    """The raw column among the features would go through every check of numbers."""
    pandas = pytest.importorskip("pandas", reason="a data frame to be refused")
    named = replace(release, label_column="income")
    table = pandas.DataFrame(X, columns=["a", "b", "c"]).assign(income=labels)
    with pytest.raises(LabelDPError, match="one door"):
        named.dataset(table)
    assert len(named.dataset(table.drop(columns="income"))) == N


WITHOUT_TORCH = """
import importlib.util  # as if torch were not installed
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "torch" else find(name, *rest)
import numpy as np, labeldp
from labeldp.features import Embeddings
release = labeldp.privatize(labeldp.SensitiveLabels([0, 1, 1], classes=[0, 1]), labeldp.RandomizedResponse(1.0), rng=0)
X = Embeddings(lambda batch: batch + 1).fit_transform(np.eye(3))
print(type(release.dataset(X).__getitems__([0])[0][0]).__name__)
try:
    labeldp.nn.ForwardLoss
except ImportError as error:
    print(error)
"""


def test_without_torch():
    """Pairs come as arrays, embeddings by a function work, and `labeldp.nn` names what to install."""
    done = subprocess.run([sys.executable, "-c", WITHOUT_TORCH], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    kind, message = done.stdout.splitlines()
    assert kind == "ndarray"
    assert message == "labeldp.nn needs `torch`, which is not installed. Run: pip install 'labeldp[torch]'"


def test_the_walk_finds_a_label(X, labels):
    """The broken twin: a dataset of (input, label) that is pickled as it is takes its labels along."""
    assert any(value is labels for value in walk({"dataset": [X, (labels,)]}))


# ---------------------------------------------------------------------------------------------------------- bad input


def test_lengths_must_agree_and_stay(release, X, labels):
    with pytest.raises(LabelDPError, match=r"60 released rows.*release\.take\(rows\)"):
        release.dataset(X[:-1])
    with pytest.raises(LabelDPError, match="one example per released row"):
        release.dataset(Pairs(X[1:], labels[1:]))
    source = Pairs(X, labels)
    data = release.dataset(source)
    for change in (source.X.pop, lambda: source.X.extend(X[:2])):
        change()
        with pytest.raises(LabelDPError, match=r"keep its 60 items, got (59|61)"):
            data[0]
        with pytest.raises(LabelDPError, match="keep its 60 items"):
            data.__getitems__([0, 1])


def test_parts_of_items_are_named(release, X, labels):
    keyed = Keyed(X, labels)
    with pytest.raises(LabelDPError, match='take="image"'):
        release.dataset(keyed)[0]
    x, _ = release.dataset(keyed, take=("ids", "mask"))[4]
    assert set(x) == {"ids", "mask"}
    assert (release.dataset(keyed, take="ids")[4][0] == X[4].astype(np.float32)).all()
    with pytest.raises(LabelDPError, match="an item of 2 parts"):
        release.dataset(Pairs(X, labels), take=2)[0]
    both = release.dataset(Pairs(X, X), take=(0, 1))[4][0]
    assert isinstance(both, tuple)
    assert len(both) == 2


def test_bad_features_are_refused(release, X):
    wrong = X.copy()
    wrong[17, 1] = np.nan
    with pytest.raises(LabelDPError, match="infinity in row 17"):
        release.dataset(wrong)
    with pytest.raises(LabelDPError, match="toarray"):
        release.dataset(scipy.sparse.csr_matrix(X))
    with pytest.raises(LabelDPError, match="be numbers"):
        release.dataset(np.array(["a"] * N))
    with pytest.raises(LabelDPError, match="map-style"):
        release.dataset(iter(X))
    with pytest.raises(LabelDPError, match="be a Release"):
        ReleasedItems(X, X)
    with pytest.raises(LabelDPError, match="evidence"):
        release.dataset(X, evidence="labels")


def test_answers_that_say_nothing_are_refused(labels, X):
    silent = privatize(SensitiveLabels(labels, classes=range(K)), RandomizedResponse(0.0), rng=0)
    with pytest.raises(LabelDPError, match="say nothing"):
        silent.dataset(X)


def test_what_counts_as_a_dataset(X, labels, release):
    assert is_dataset(Pairs(X, labels))
    assert is_dataset(Items(Pairs(X, labels), owner="test"))
    assert is_dataset(release.dataset(X))
    assert not any(is_dataset(other) for other in (X, X.tolist(), "text", {"a": 1}, scipy.sparse.csr_matrix(X), None))


def test_the_warning_of_a_seeded_release_goes_along(X, labels, release):
    data = release.dataset(X)
    assert data.seeded
    assert "SEEDED, NOT PRIVATE" in repr(data)
    assert data.guarantee == release.guarantee
    private = privatize(SensitiveLabels(labels, classes=range(K)), InformativeResponse(1.0)).dataset(X)
    assert not private.seeded
    assert "SEEDED" not in repr(private)


def test_lists_of_rows_are_no_guess():
    rows = [[0.5, 1.5, 2.5], [3.5, 4.5, 5.5]]
    release = privatize([0, 1], RandomizedResponse(epsilon=1.0, n_classes=2), rng=0)
    for given in (rows, [tuple(row) for row in rows]):
        with pytest.raises(LabelDPError, match=r"np\.asarray"):
            release.dataset(given)[0]
        assert release.dataset(given, take=1)[1][0] == 4.5
    assert release.dataset(np.asarray(rows))[1][0].tolist() == rows[1]


@pytest.mark.parametrize(
    ("rows", "got"),
    [
        ([0, 50_000], "0 to 50000"),
        ([-50_000], "-50000 to -50000"),
        ([0.5], r"an array of shape \(1,\) and type float64"),
        ([True, False], r"an array of shape \(2,\) and type bool"),
        ([[0, 1]], r"an array of shape \(1, 2\)"),
    ],
)
def test_rows_that_were_not_released_are_not_taken(rows, got):
    release = privatize([0, 1, 1, 0], RandomizedResponse(1.0, n_classes=2))
    with pytest.raises(LabelDPError, match=rf"`rows` must be among the 4 released rows, got {got}"):
        release.take(rows)
    assert [len(release.take(rows)) for rows in ([], [-1], [True, False, False, True], slice(1, 9))] == [0, 1, 2, 3]
