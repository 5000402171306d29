"""Checks of the peer-to-peer parameters, for the mechanism and for its accountant."""

from __future__ import annotations

from typing import Any

from labeldp._validate import check_delta, check_real
from labeldp.errors import PrivacyError, invalid

#: No smaller delta than this is certified by floats; below it the pure end speaks.
FLOOR = 1e-13


def check_alpha(owner: str, alpha: Any) -> float:
    """Return alpha in (0, 1/2]."""
    value = check_real(owner, "alpha", alpha)
    if not 0 < value <= 0.5:
        fix = "It is the chance of a flip: 1/2 says nothing, and 0 would show a label to the peer who asks."
        raise invalid(owner, "alpha", "be in (0, 1/2]", got=alpha, fix=fix)
    return value


def check_theta(owner: str, theta: Any) -> float:
    """Return theta in (0, 1]."""
    value = check_real(owner, "theta", theta)
    if not 0 < value <= 1:
        raise invalid(owner, "theta", "be in (0, 1]", got=theta, fix="Use 1 if everyone takes part.")
    return value


def check_floor(owner: str, delta: Any) -> float:
    """Return a delta that floating point can certify."""
    value = check_delta(owner, delta)
    if 0 < value < FLOOR:
        fix = "Use delta = 0 for the pure guarantee, which needs no floats."
        raise invalid(owner, "delta", f"be 0 or at least {FLOOR:g}", got=delta, fix=fix, kind=PrivacyError)
    return value
