"""Audits of numbers: a release that carries its raw numbers, a mechanism that claims too much, an owner's own attack."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import labeldp
from labeldp.audit import audit
from labeldp.audit.suite import door_audit
from labeldp.channel import NumericChannel
from labeldp.engines import privatize_table
from labeldp.errors import PrivacyError
from labeldp.guarantee import Guarantee
from labeldp.mechanisms import BinnedResponse, LaplaceResponse, NumericMechanism
from labeldp.release import privatize

BOUNDS = (0.0, 100.0)


def make_release(folder: Path, columns: dict[str, Any], raw: Any, *, epsilon: float = 2.0) -> Path:
    import pyarrow.parquet as pq

    pq.write_table(pa.table({**columns, "amount": raw}), folder / "table.parquet")
    return privatize_table(
        folder / "table.parquet", label="amount", to=folder / "out", bounds=BOUNDS, epsilon=epsilon
    ).directory


def find_check(found: Any, name: str) -> Any:
    return next(check for check in found.checks if check.name == name)


@pytest.mark.parametrize("copy", ["as it is", "in whole numbers", "decimals"])
def test_a_copy_of_the_raw_numbers_is_found(copy: str, tmp_path: Path) -> None:
    raw = np.round(np.random.default_rng(3).gamma(2.0, 20.0, 20_000), 2)
    kept = {
        "as it is": pa.array(raw),
        "in whole numbers": pa.array(np.rint(raw).astype(np.int64)),
        "decimals": pa.array(raw).cast(pa.decimal128(12, 2)),
    }[copy]
    found = audit(make_release(tmp_path, {"age": np.arange(20_000), "left": kept}, raw))
    assert not find_check(found, "no raw label column").passed
    assert "'left'" in find_check(found, "no raw label column").detail


def test_features_of_the_numbers_are_no_copies(tmp_path: Path) -> None:
    """Half of it, another unit, and a prediction that is right on average: none is taken for the raw numbers."""
    rng = np.random.default_rng(3)
    guess = rng.uniform(20, 80, 20_000)
    raw = guess + rng.normal(0, 25, 20_000)
    columns = {"half": raw / 2, "shifted": raw + 20, "guess": guess, "row": np.arange(20_000)}
    found = audit(make_release(tmp_path, columns, raw, epsilon=4.0))
    assert find_check(found, "no raw label column").passed
    assert found.passed


@dataclass(frozen=True)
class Overclaiming(NumericMechanism):
    """Answers at twice the epsilon that it claims."""

    uses_prior = False

    @property
    def n_classes(self) -> int:
        return 5

    def most_answers(self) -> int:
        return 10

    def design(self, prior: Any) -> Any:
        return labeldp.UnbiasedResponse(2 * self.epsilon, bounds=(-1, 1), grid=5).design(prior)

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee.pure(self.epsilon)


class Hiding(NumericChannel, kind="hiding numbers"):
    """A channel that says of itself that it is half as telling as it is."""

    @property
    def epsilon(self) -> float:
        return float(super().epsilon) / 2


@dataclass(frozen=True)
class Lying(Overclaiming):
    """The same, with a channel that hides it from the door."""

    def channel(self, prior: Any = None, **options: Any) -> Any:
        true = super().channel(prior, **options)
        return Hiding(true.transition, levels=true.levels, values=true.values)


SOUND = [
    labeldp.UnbiasedResponse(1.0, bounds=BOUNDS, grid=9),
    LaplaceResponse(1.0, bounds=BOUNDS, grid=9),
    BinnedResponse(1.0, bounds=BOUNDS),
]


@pytest.mark.parametrize("mechanism", SOUND, ids=lambda one: type(one).__name__)
def test_sound_mechanisms_pass(mechanism: Any) -> None:
    """A sound one is refuted once in a million times."""
    found = door_audit(privatize, mechanism, n_classes=5, n_draws=40_000, confidence=1 - 1e-6, seed=0)
    assert found.passed


def test_a_mechanism_that_claims_too_much_is_refuted() -> None:
    twin = Lying(1.0, bounds=BOUNDS)
    found = door_audit(privatize, twin, n_classes=5, n_draws=200_000, confidence=1 - 1e-6, seed=0)
    assert not found.passed
    assert found.lower_bound is not None
    assert found.lower_bound > 1.2
    with pytest.raises(PrivacyError, match="claims epsilon"):  # where its channel is honest the door finds it
        privatize([50.0], Overclaiming(1.0, bounds=BOUNDS))


def test_a_table_by_a_mechanism_that_claims_too_much_is_refused(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"amount": [1.0, 2.0]}), tmp_path / "table.parquet")
    ledger = labeldp.Ledger(tmp_path / "ledger.sqlite")
    with pytest.raises(PrivacyError, match="claims epsilon"):
        privatize_table(
            tmp_path / "table.parquet",
            label="amount",
            to=tmp_path / "out",
            mechanism=Overclaiming(1.0, bounds=BOUNDS),
            ledger=ledger,
        )
    assert ledger.entries() == ()
