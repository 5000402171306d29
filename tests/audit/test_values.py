"""What a claim says about one label replaced, whatever its unit."""

from __future__ import annotations

import math

import pytest

from labeldp.audit.results import claimed_epsilon
from labeldp.guarantee import Guarantee, Unit


def test_a_label_replaced_is_one_record_removed_and_one_added():
    assert claimed_epsilon("test", Guarantee.pure(1.0, unit=Unit.RECORD_ADD_REMOVE), 0.0) == 2.0
    assert claimed_epsilon("test", Guarantee.pure(1.0, unit=Unit.RECORD_REPLACE), 0.0) == 1.0
    assert claimed_epsilon("test", Guarantee.pure(1.0), 0.0) == 1.0


@pytest.mark.parametrize("sigma", [1.0, 3.0])
def test_two_gaussian_steps_cover_the_exact_one(sigma: float):
    """Replacing a record of a sum moves it by two sensitivities at most: the exact epsilon is below the converted one."""
    claim = Guarantee.gaussian(sigma=sigma, sensitivity=1.0, unit=Unit.RECORD_ADD_REMOVE)
    exact = Guarantee.gaussian(sigma=sigma, sensitivity=2.0).epsilon(1e-5)
    converted = claimed_epsilon("test", claim, 1e-5)
    assert converted is not None
    assert exact <= converted < 3 * exact
    assert claimed_epsilon("test", claim, 0.0) == math.inf
