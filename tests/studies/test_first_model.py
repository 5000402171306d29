"""The study `first-model` on the real sets, in its smallest form, and the words it derives from its rows."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from studies import StudyRow, read_result
from studies import first_model as subject

#: These studies stop their solver at a fixed number of steps, on small parts of the data too; their tests are not about that.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def test_findings_are_read_off_the_rows():
    gains = dict(zip((t.setting for t in subject.TREATMENTS), (92.0, 79.0, 89.0, 80.0, 89.5, 91.0, 90.0), strict=True))
    rows = [
        StudyRow(table="mnist", setting=name, epsilon=epsilon, trust=trust, values=(value, value))
        for name, value in gains.items()
        for trust in ["a curator" if name.startswith("cluster prior") else "no one"]
        for epsilon in [math.inf if name == "no privacy" else 1.0]
    ]
    said = subject.FirstModel().findings(rows)
    assert "two stages, forward 89.5% (sd 0.00, +10.5 points" in said[0]
    assert "Another promise, trusts a curator, pure: cluster prior, plain 91.0% (sd 0.00)" in said[0]
    assert "95% (mnist) of the best gain that trusts no one" in said[1]  # 10 of 10.5 points


@pytest.mark.data
def test_one_treatment_on_a_small_part_of_mnist(shared_data, monkeypatch):
    monkeypatch.setattr(subject, "QUICK_ROWS", 1_500)
    images = subject.read_images("mnist", shared_data("mnist").parent, quick=True)
    assert images.X_train.dtype == np.float32
    assert len(images.y_train) == 1_500
    treatment = next(t for t in subject.TREATMENTS if t.setting == "cluster prior, plain")
    with threadpool_limits(limits=1):  # threads that wait for each other on a busy machine take ten times as long
        (found,) = subject.FirstModel().run_case(subject.Case(images=images, treatment=treatment), seed=0)
    assert found.epsilon <= 1.0  # the histogram and the response share one budget
    assert found.trust == "a curator"
    assert 30 < found.value < 100  # chance is 10; plain randomized response has about 20 here


def test_committed_results_meet_what_they_must_show(repository: Path):
    # Multi-stage or cluster prior beats plain randomized response by 3 points on each set, mean of 5 seeds.
    result = read_result(repository / "studies" / "results" / "first-model" / "result.json")
    assert result.tables() == ("mnist", "fashion-mnist")
    for table in result.tables():
        rows = {row.setting: row for row in result.rows if row.table == table}
        informed = [row for name, row in rows.items() if name.startswith(("two stages", "cluster prior"))]
        plain = rows["randomized response, plain"]
        assert plain.n_seeds == 5
        assert all(row.n_seeds == 5 and row.epsilon <= 1.0 for row in [plain, *informed])
        assert max(row.mean for row in informed) >= plain.mean + 3.0
        assert {row.trust for row in informed} == {"no one", "a curator"}
    assert subject.FirstModel().findings(result.rows) == result.findings  # the words are those of these rows
