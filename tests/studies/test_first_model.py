"""The study `first-model` on the real sets, in its smallest form, and the words it derives from its rows."""

from __future__ import annotations

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from studies import StudyRow
from studies import first_model as subject


def test_findings_are_read_off_the_rows():
    gains = dict(zip((t.setting for t in subject.TREATMENTS), (92.0, 79.0, 89.0, 80.0, 89.5, 91.0, 90.0), strict=True))
    rows = [
        StudyRow(table="mnist", setting=name, epsilon=1.0, trust="no one", values=(value, value))
        for name, value in gains.items()
    ]
    said = subject.findings(rows)
    assert "cluster prior, plain 91.0% (sd 0.00, +12.0 points, trusts no one)" in said[0]
    assert "two stages, forward 89.5% (sd 0.00, +10.5 points" in said[0]
    assert "83% (mnist) of the best gain" in said[1]  # 10 of 12 points


@pytest.mark.data
def test_one_treatment_on_a_small_part_of_mnist(shared_data, monkeypatch):
    monkeypatch.setattr(subject, "QUICK_ROWS", 1_500)
    directory = shared_data("mnist").parent
    data = subject._features(subject.load("mnist", directory=directory), quick=True)
    assert data.X_train.dtype == np.float32
    assert len(data.y_train) == 1_500
    treatment = next(t for t in subject.TREATMENTS if t.setting == "cluster prior, plain")
    with threadpool_limits(limits=1):  # threads that wait for each other on a busy machine take ten times as long
        row = subject._measured(data, treatment, 0, (0,), subject._grouping(data))
    assert row.epsilon <= 1.0  # the histogram and the response share one budget
    assert row.trust == "a curator"
    assert 30 < row.mean < 100  # chance is 10; plain randomized response has about 20 here
