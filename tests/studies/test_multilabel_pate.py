"""The study `multilabel-pate`: budgets are kept, scores done by hand, a small run, and what the committed result shows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from labeldp.data import Dataset
from labeldp.learn.pate.votes import SetAnswers
from labeldp.random import NoiseKey
from studies import StudyRow, read_result
from studies import multilabel_pate as subject


def dataset(name: str, *, n_labels: int = 0) -> Dataset:
    """Rows whose labels are signs of their columns, or whose class is the largest of four columns."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1_800, 8)).astype(np.float32)
    y = (X[:, :n_labels] > 0.7).astype(np.uint8) if n_labels else X[:, :4].argmax(axis=1)
    return Dataset(
        name=name,
        X_train=X[:1_500],
        y_train=y[:1_500],
        X_test=X[1_500:],
        y_test=y[1_500:],
        classes=tuple(f"c{i}" for i in range(n_labels or 4)),
        feature_names=tuple(f"f{i}" for i in range(8)),
        label_name="label",
        sensitive_label="made up",
        licence="none",
        citation="made up",
    )


TASK = subject.Task(source="made up", n_teachers=40, typical=2, threshold=0.5)


@pytest.fixture(scope="module")
def poll() -> subject.Poll:
    data = dataset("made up", n_labels=6)
    return subject.take_poll(TASK, data, subject.reduce_features(data), seed=0, n_queries=30)


def test_votes_are_counted_whole_and_clipped(poll: subject.Poll):
    assert poll.counts.shape == poll.clipped.shape == (30, 6)
    assert (poll.clipped <= poll.counts).all()
    assert poll.clipped.sum(axis=1).max() <= TASK.n_teachers * TASK.typical
    assert poll.counts.max() <= TASK.n_teachers
    # A cliff of all teachers at least at one rank is 1; some rank has at least an equal part.
    assert (poll.gaps() >= 1 / 7).all()
    assert (poll.gaps() <= 1).all()


@pytest.mark.parametrize("epsilon", [4.0, 32.0])
@pytest.mark.parametrize("method", subject.METHODS)
def test_every_method_spends_what_it_was_given_and_no_more(poll: subject.Poll, method: str, epsilon: float):
    found = subject.METHODS[method](poll, epsilon, NoiseKey.from_seed(0))
    # The noise of StableTopK is found by Renyi curves, and may promise up to 2% less than was asked for.
    assert 0.98 * epsilon < found.epsilon <= epsilon


@pytest.mark.parametrize("method", subject.METHODS)
def test_with_next_to_no_noise_clear_votes_are_answered_as_the_majority(poll: subject.Poll, method: str):
    found = subject.METHODS[method](poll, 1e5, NoiseKey.from_seed(0)).found
    clear = poll.gaps()[found.rows] > 0.7
    assert clear.any()
    bound = np.minimum(poll.majority.sum(axis=1), TASK.typical)[found.rows] == poll.majority.sum(axis=1)[found.rows]
    same = (found.sets == poll.majority[found.rows]).all(axis=1)
    assert same[clear & bound].all()


def test_scores_done_by_hand(poll: subject.Poll):
    truth, found = np.array([[1, 1, 0], [0, 0, 1]], np.uint8), np.array([[1, 0, 0], [0, 1, 1]], np.uint8)
    assert subject.micro_f1(found, truth) == pytest.approx(100 * 2 * 2 / 6)
    assert subject.accuracy(found, truth) == pytest.approx(100 * 4 / 6)
    assert subject.micro_f1(np.zeros((1, 2), np.uint8), np.zeros((1, 2), np.uint8)) == 0.0
    right = subject.score_answers(poll, SetAnswers(rows=np.arange(30), sets=poll.Y_queries))
    assert (right.answers_f1, right.answers_accuracy, right.answered) == (100.0, 100.0, 100.0)
    none = subject.score_answers(poll, SetAnswers(rows=np.arange(0), sets=poll.Y_queries[:0]))
    assert (none.answers_f1, none.student_f1, none.answered) == (0.0, 0.0, 0.0)


def test_a_small_run_has_every_table_and_plot(monkeypatch: pytest.MonkeyPatch):
    tasks = (replace(TASK, n_teachers=20), subject.Task(source="other", n_teachers=20, typical=2, threshold=0.3))
    monkeypatch.setattr(subject, "TASKS", tasks)
    labels = {task.source: 6 for task in tasks}
    monkeypatch.setattr(subject, "load", lambda name, directory=None: dataset(name, n_labels=labels.get(name, 0)))
    monkeypatch.setattr(subject, "N_ANSWERS", 40)
    monkeypatch.setattr(subject, "QUICK_TEACHERS", 20)
    told: list[float] = []
    study = subject.MultiLabelPate(quick=True)
    result = study.run(progress=lambda share, _: told.append(share))
    assert told == sorted(told)
    assert told[-1] == 1.0
    expected = {subject.table_name(task.name, measure) for task in tasks for measure in subject.MEASURES}
    assert set(result.tables()) == expected | set(subject.CLASS_TABLES)
    assert all(f"votes on {task.name}" in result.facts for task in tasks)
    assert len(study.plots(result.rows)) == 2 * len(tasks) + len(subject.CLASS_TABLES)
    assert {row.setting for row in result.rows if row.table in expected} == {
        subject.NOISELESS,
        *subject.METHODS,
    }


def rows_of(name: str, values: dict[float, float]) -> list[StudyRow]:
    return [
        StudyRow(table="t", setting=name, epsilon=epsilon, trust="a curator", values=(value,))
        for epsilon, value in values.items()
    ]


def test_epsilon_at_equal_accuracy_is_where_a_line_stays_above():
    rows = rows_of("a", {2.0: 50.0, 4.0: 30.0, 8.0: 60.0, 16.0: 61.0})
    assert subject.least_epsilon(rows, "t", "a", 45.0) == 8.0
    assert subject.least_epsilon(rows, "t", "a", 61.5) == float("inf")


def test_halves_are_counted_on_the_grid():
    rows = rows_of("a", {1.999: 30.0, 3.999: 45.0, 8.0: 50.0}) + rows_of("b", {2.0: 1.0, 4.0: 31.0, 8.0: 45.0})
    # b at 4 against a at 2: worse. b at 8 against a at 4: level counts. b at 2 has no half.
    assert subject.count_halves(rows, "t", "a", "b") == (1, 2)


@pytest.fixture(scope="module")
def committed(repository: Path) -> list[StudyRow]:
    result = read_result(repository / "studies" / "results" / "multilabel-pate" / "result.json")
    assert result.facts["quick"] is False
    assert all(row.n_seeds == 3 for row in result.rows)
    return list(result.rows)


def test_committed_result_says_where_half_of_the_epsilon_is_enough(committed: list[StudyRow]):
    # Issue 5 asks for two sets, or for where each wins. By micro-F1 of answers it is one set, by accuracy per label,
    # the paper's measure, at least two; both are found in the rows, not in the words.
    tasks = [task.name for task in subject.TASKS]
    by_f1 = subject.list_half(committed, tasks, subject.BOUNDED, "answers_f1")
    assert {name.split(",")[0] for name in by_f1} == {"bibtex"}
    by_accuracy = subject.list_half(committed, tasks, subject.STABLE, "answers_accuracy")
    assert len({name.split(",")[0] for name in by_accuracy}) >= 2


def test_committed_words_on_the_others_are_what_the_rows_show(committed: list[StudyRow]):
    for task in subject.TASKS:
        table = subject.table_name(task.name, "answers_f1")
        level = 0.8 * subject.pick_line(committed, table, subject.NOISELESS)[0].mean
        needs = {m: subject.least_epsilon(committed, table, m, level) for m in subject.METHODS}
        assert min(needs, key=lambda name: needs[name]) == subject.CLIPPED
    answers, student = (
        {name: subject.pick_line(committed, table, name)[-1].mean for name in subject.CLASS_METHODS}
        for table in subject.CLASS_TABLES
    )
    assert answers["Confident-GNMax"] > answers["GNMax"]
    assert student["Confident-GNMax"] < student["GNMax"] + 2  # about the spread over seeds
