"""Unit rows: never longer than one, rounding included; sparse stays sparse."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from sklearn.preprocessing import Normalizer
from sklearn.utils.estimator_checks import check_estimator

from labeldp.features import UnitRows


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(seed=st.integers(min_value=0, max_value=2**32 - 1))
def test_no_row_is_longer_than_one(dtype: type, seed: int):
    rng = np.random.default_rng(seed)
    X = (rng.normal(size=(30, 17)) * 10.0 ** rng.integers(-3, 4, size=(30, 1))).astype(dtype)
    rows = UnitRows().fit_transform(X)
    assert rows.dtype == dtype
    # np.longdouble holds the exact squares of float64 to 64 bits: enough to see an ulp above one.
    norms = np.sqrt((rows.astype(np.longdouble) ** 2).sum(axis=1))
    assert norms.max() <= 1.0
    assert norms.min() >= 1.0 - 40 * np.finfo(dtype).eps


def test_scikit_learn_s_normalizer_does_exceed_one():
    """The broken twin: why there is a class for this."""
    X = np.random.default_rng(0).normal(size=(2000, 17))
    rows = Normalizer().fit_transform(X).astype(np.longdouble)
    assert np.sqrt((rows**2).sum(axis=1)).max() > 1.0


def test_sparse_stays_sparse_and_agrees():
    X = np.array([[3.0, 0.0, 4.0], [0.0, 0.0, 0.0]])
    rows = UnitRows().fit_transform(scipy.sparse.csr_matrix(X))
    assert scipy.sparse.issparse(rows)
    assert (rows.toarray() == UnitRows().fit_transform(X)).all()


def test_scikit_learn_s_checks_pass():
    results = check_estimator(UnitRows(), on_fail=None, on_skip=None)
    assert [result["check_name"] for result in results if result["status"] == "failed"] == []
