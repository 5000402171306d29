"""Conformance suites that every mechanism passes, ours or yours, and broken twins that show what the suites catch.

>>> import labeldp, labeldp.testing
>>> labeldp.testing.check_mechanism(labeldp.RRWithPrior(1.0), n_classes=3)  # silence is a pass

In a test suite, one test per check:

>>> import pytest
>>> @pytest.mark.parametrize("check", labeldp.testing.mechanism_checks(), ids=str)
... def test_mine(check):
...     check(labeldp.testing.Subject(mechanism=labeldp.RRTopK(1.0, k=2), n_classes=4))

References: Ghazi, Golowich, Kumar, Manurangsi, Zhang (2021), Deep Learning with Label Differential Privacy (RRTop-k,
RRWithPrior, Theorem 3).

Design notes. The checks see a mechanism through three public calls alone (`channel`, `guarantee`, `privatize`) and do
their own arithmetic on dense matrices, so that they share no formula with what they judge. Deterministic checks have
no tolerance but stated rounding; statistical ones are exact binomial tests, whose false alarms together are at most
`Subject.failure`. Each check has at least one mechanism in `labeldp.testing.broken` that it must catch.
"""

from labeldp.testing.subject import Check, ConformanceError, Subject
from labeldp.testing.suite import check_mechanism, check_optimal, mechanism_checks

__all__ = ["Check", "ConformanceError", "Subject", "check_mechanism", "check_optimal", "mechanism_checks"]
