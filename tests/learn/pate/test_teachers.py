"""Teachers: disjoint parts dealt blindly, one changed record reaches one of them, and odd parts do not break them."""

from __future__ import annotations

import warnings
from functools import partial

import joblib
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from tests.conftest import overlap

from labeldp.errors import LabelDPError
from labeldp.learn.pate.teachers import (
    collect_votes,
    deal_rows,
    fit_labels,
    quiet_failure,
    seed_teacher,
    vote_for_class,
    vote_for_labels,
)

RNG = np.random.default_rng(0)
X, PUBLIC = RNG.normal(size=(30, 3)), RNG.normal(size=(25, 3))
CODES = RNG.integers(3, size=30)
LABELS = RNG.integers(2, size=(30, 3)).astype(np.uint8)


def polled(vote, teacher, rows, targets, **settings):
    chosen = {"n_teachers": 6, "split": 5, "n_jobs": None, "verbose": 0, "store": None, **settings}
    return collect_votes(vote, teacher, rows, targets, PUBLIC, **chosen)


@pytest.mark.parametrize(("n_rows", "n_teachers"), [(1, 1), (7, 7), (100, 9), (1000, 1)])
def test_parts_are_disjoint_and_cover_all_rows(n_rows: int, n_teachers: int):
    parts = deal_rows(n_rows, n_teachers=n_teachers, split=3)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(n_rows))
    sizes = [len(part) for part in parts]
    assert len(parts) == n_teachers
    assert max(sizes) - min(sizes) <= 1


def test_parts_depend_on_the_split_and_are_in_no_order_of_the_rows():
    one, two = deal_rows(100, n_teachers=2, split=1), deal_rows(100, n_teachers=2, split=2)
    assert not np.array_equal(one[0], two[0])
    assert not np.array_equal(one[0], np.arange(50))


@pytest.mark.parametrize("unit", ["label", "record"])
def test_one_changed_record_changes_the_votes_of_one_teacher(unit: str):
    """Every row in turn. The trees draw random numbers; each teacher has its own."""
    teacher = DecisionTreeClassifier(max_features=1)
    before = polled(vote_for_class, teacher, X, CODES)
    reached = set()
    for row in range(len(X)):
        rows, codes = X.copy(), CODES.copy()
        codes[row] = (codes[row] + 1) % 3
        if unit == "record":
            rows[row] = -5.0
        changed = np.flatnonzero((polled(vote_for_class, teacher, rows, codes) != before).any(axis=1))
        assert changed.size <= 1
        assert all(row in deal_rows(30, n_teachers=6, split=5)[i] for i in changed)
        reached |= set(changed.tolist())
    assert len(reached) == 6  # and the test can see a change


def test_one_changed_row_of_labels_changes_the_votes_of_one_teacher():
    vote = partial(vote_for_labels, tau=2)
    before = polled(vote, DecisionTreeClassifier(), X, LABELS)
    assert before.sum(axis=2).max() <= 2
    seen = 0
    for row in range(len(X)):
        labels = LABELS.copy()
        labels[row] = 1 - labels[row]
        changed = (polled(vote, DecisionTreeClassifier(), X, labels) != before).any(axis=(1, 2)).sum()
        assert changed <= 1
        seen += changed
    assert seen > 10


def test_every_random_state_is_set_and_each_teacher_has_its_own():
    teacher = make_pipeline(StandardScaler(), DecisionTreeClassifier())
    states = [seed_teacher(teacher, i, split=9).get_params()["decisiontreeclassifier__random_state"] for i in range(5)]
    assert len(set(states)) == 5
    assert teacher.get_params()["decisiontreeclassifier__random_state"] is None
    assert seed_teacher(GaussianNB(), 0, split=9).get_params() == GaussianNB().get_params()


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_votes_do_not_depend_on_the_number_of_workers(n_jobs: int):
    with joblib.parallel_config(backend="threading"):
        votes = polled(vote_for_class, DecisionTreeClassifier(), X, CODES, n_jobs=n_jobs)
    assert np.array_equal(votes, polled(vote_for_class, DecisionTreeClassifier(), X, CODES))


def test_progress_goes_to_stderr(capsys: pytest.CaptureFixture[str]):
    polled(vote_for_class, GaussianNB(), X, CODES, verbose=1)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[-1] == "PATE: 6 of 6 teachers have voted"


def test_a_part_of_one_class_makes_a_constant_teacher():
    votes = vote_for_class(LogisticRegression(), X, np.full(30, 2), PUBLIC)
    assert votes.tolist() == [2] * 25


def test_a_part_without_a_class_never_votes_for_it():
    assert set(vote_for_class(GaussianNB(), X, np.where(CODES == 1, 0, CODES), PUBLIC).tolist()) <= {0, 2}


def test_a_regressor_is_refused():
    with pytest.raises(LabelDPError, match="predict one class per point"):
        vote_for_class(Ridge(), X, CODES, PUBLIC)


@pytest.mark.parametrize(
    "model",
    [OneVsRestClassifier(LogisticRegression()), KNeighborsClassifier(3), DecisionTreeClassifier(random_state=0)],
    ids=lambda model: type(model).__name__,
)
@pytest.mark.parametrize("constant", [(), (0,), (0, 2), (0, 1, 2)])
def test_constant_columns_are_learned_as_such(model, constant: tuple[int, ...]):
    targets = LABELS.copy()
    for column in constant:
        targets[:, column] = column % 2
    fitted = fit_labels(model, X, targets)
    found, scores = fitted.predict(PUBLIC), fitted.scores(PUBLIC)
    assert found.shape == scores.shape == (25, 3)
    assert ((scores >= 0) & (scores <= 1)).all()
    for column in constant:
        assert (found[:, column] == column % 2).all()
        assert (scores[:, column] == column % 2).all()
    for column in set(range(3)) - set(constant):
        assert set(found[:, column].tolist()) == {0, 1}


def test_a_model_of_single_labels_is_refused():
    class Flat(GaussianNB):
        def fit(self, X, y):
            return super().fit(X, y[:, 0])

    with pytest.raises(LabelDPError, match="predict rows of 0 and 1"):
        fit_labels(Flat(), X, LABELS).predict(PUBLIC)


def test_nan_scores_are_refused():
    class Lost(KNeighborsClassifier):
        def predict_proba(self, X):
            return [np.full((len(X), 2), np.nan)] * 3

    with pytest.raises(LabelDPError, match="NaN"):
        vote_for_labels(Lost(1), X, LABELS, PUBLIC, tau=1)


def test_words_of_a_teacher_are_kept_back_while_another_one_ends():
    """Before: of two teachers in threads the one that ended first let the other's words through, raw labels among them.

    What it had put back was then taken off again by the other one, for good: no warning of this process was shown any more.
    """
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        before = warnings.filters
        overlap(
            quiet_failure("PATE"),
            quiet_failure("PATE"),
            then=lambda _: warnings.warn("labels 0, 1, 1", UserWarning, stacklevel=1),
        )
        assert warnings.filters is before
        warnings.warn("a later one", UserWarning, stacklevel=1)
    said = [str(one.message) for one in told]
    assert len(said) == 2
    assert said[0].startswith("PATE: a teacher warned (UserWarning).")
    assert said[1] == "a later one"


def test_a_teacher_that_fails_leaves_warnings_as_they_were():
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        before = warnings.filters
        with pytest.raises(LabelDPError, match="learn from its part"), quiet_failure("PATE"):
            raise RuntimeError("labels 0, 1, 1")
        assert warnings.filters is before
        warnings.warn("a later one", UserWarning, stacklevel=1)
    assert [str(one.message) for one in told] == ["a later one"]
