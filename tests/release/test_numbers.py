"""Numbers at the door: what is read, clipped, refused and stored; and that between levels the mean stays the number."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import labeldp
from labeldp.audit import Randomizer, audit
from labeldp.channel import NumericChannel, join_channels
from labeldp.errors import LabelDPError, PrivacyError, ReleaseError
from labeldp.release.manifest import digest, file_facts

BOUNDS = (0.0, 10.0)
PLAIN = labeldp.UnbiasedResponse(np.inf, bounds=BOUNDS, grid=11)
MECHANISM = labeldp.UnbiasedResponse(2.0, bounds=BOUNDS, grid=5, outputs=9)


@pytest.mark.parametrize(
    "column",
    [
        [1, 2, 10],
        np.array([1, 2, 250], np.uint8),
        np.array([1.0, 2.0, 1e300]),
        np.array([1.0, 2.0, 11.0], np.float32),
        [Decimal("1.0"), Fraction(2), 10],
        [1, 2, 10**300],
        pd.Series([1, 2, 10], dtype="Int64"),
        pd.Series([1, 2, 12.5]),
        pa.array([1, 2, 10]),
        pa.chunked_array([[1], [2, 10]]),
        pa.array([Decimal("1.00"), Decimal("2.00"), Decimal("10.00")]),
    ],
    ids=lambda column: type(column).__module__ + str(getattr(column, "dtype", "")),
)
def test_columns_of_numbers_are_read_and_clipped(column: Any):
    # Without privacy the answers are the levels: what was boxed can be seen.
    assert labeldp.privatize(column, PLAIN).values.tolist() == [1.0, 2.0, 10.0]


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ([1.0, np.nan], "missing or infinite number in row 1"),
        ([None, 1.0], "missing or infinite number in row 0"),
        ([1.0, -np.inf], "missing or infinite number in row 1"),
        (pd.Series([1, None], dtype="Int64"), "missing or infinite number in row 1"),
        ([1.0, 10**400], "beyond float64 in row 1"),
        ([Decimal("sNaN"), 1.0], "beyond float64 in row 0"),
        ([True, False], "booleans"),
        (["1", "2"], "text in row 0"),
        ([1 + 2j], "complex"),
        ([dt.date(2020, 1, 1)], "dates or durations, the first in row 0"),
        (np.array(["2020-01-01"], "M8[D]"), "dates or durations"),
        (pd.Series(pd.to_timedelta([1, 2], unit="D")), "dates or durations"),
        (pa.array([dt.datetime(2020, 1, 1, tzinfo=dt.timezone.utc)]), "dates or durations"),
        ([[1.0], [2.0]], "shape"),
        ([], "at least one label"),
    ],
    ids=range(15),
)
def test_what_is_no_number_is_refused_before_the_charge(column: Any, words: str, tmp_path: Path):
    ledger = labeldp.Ledger(tmp_path / "ledger.db")
    with pytest.raises(LabelDPError, match=words):
        labeldp.privatize(column, MECHANISM, ledger=ledger)
    assert len(list(ledger.entries())) == 0


def test_messages_show_no_number():
    with pytest.raises(LabelDPError) as caught:
        labeldp.SensitiveLabels([1.0, 4711.25], bounds=BOUNDS, outside="refuse")
    assert "4711" not in str(caught.value)
    assert "row 1" in str(caught.value)


def test_outside_is_clipped_or_refused_and_the_guarantee_says_so():
    clipped = labeldp.SensitiveLabels([-5, 3, 50], bounds=BOUNDS)
    assert labeldp.privatize(clipped, PLAIN).values.tolist() == [0.0, 3.0, 10.0]
    said = str(labeldp.privatize(clipped, MECHANISM).guarantee)
    assert "the bounds [0, 10] did not see these labels; numbers outside were clipped to them" in said
    inside = labeldp.SensitiveLabels([0, 3, 10], bounds=BOUNDS, outside="refuse")
    assert "clipped" not in str(labeldp.privatize(inside, MECHANISM).guarantee)
    with pytest.raises(LabelDPError, match="one of 'clip', 'refuse'"):
        labeldp.SensitiveLabels([1], bounds=BOUNDS, outside="drop")
    with pytest.raises(LabelDPError, match="left out where classes are given"):
        labeldp.SensitiveLabels([1], bounds=BOUNDS, classes=[1])


def test_the_box_shows_nothing_and_copies():
    raw = np.array([1.0, 2.0])
    boxed = labeldp.SensitiveLabels(raw, bounds=BOUNDS, name="claims")
    raw[:] = 9.0
    assert repr(boxed) == "<SensitiveLabels 'claims': 2 numbers in [0, 10], contents hidden>"
    assert labeldp.privatize(boxed, PLAIN).values.tolist() == [1.0, 2.0]
    assert labeldp.privatize(boxed.take([1]), PLAIN).values.tolist() == [2.0]


@pytest.mark.parametrize("number", [0.0, 0.3, 4.999, 7.5, 10.0])
def test_released_numbers_have_the_number_as_their_mean(number: float):
    # Hoeffding: the mean of n answers within width w is off by t with probability 2 exp(-2 n t^2 / w^2): 1e-6 here.
    n = 200_000
    release = labeldp.privatize(np.full(n, number), MECHANISM, rng=1)
    width = float(np.ptp(release.channel.values[0][release.channel.transition[0].max(axis=0) > 0]))
    allowed = width * np.sqrt(np.log(2e6) / (2 * n))
    assert abs(release.values.mean() - number) <= allowed
    # A twin that rounds to the nearest level is found.
    if number == 0.3:
        nearest = labeldp.privatize(np.full(n, 0.0), labeldp.UnbiasedResponse(8.0, bounds=BOUNDS, grid=5), rng=1)
        spread = np.sqrt(nearest.channel.spread())
        assert abs(nearest.values.mean() - number) > 5 * spread / np.sqrt(n)


def test_pieces_are_the_whole_and_start_counts():
    numbers = np.linspace(0, 10, 1000)
    whole = labeldp.privatize(numbers, MECHANISM, rng=3).codes
    parts = [
        labeldp.privatize(numbers[low : low + 300], MECHANISM, rng=3, start=low).codes for low in range(0, 1000, 300)
    ]
    assert (np.concatenate(parts) == whole).all()


def test_likelihood_posterior_and_spread():
    release = labeldp.privatize([2.0, 7.0, 5.0], MECHANISM, rng=0)
    channel = release.channel
    prior = np.array([0.1, 0.2, 0.4, 0.2, 0.1])
    matrix = channel.matrix()
    for row, code in enumerate(release.codes):
        law = prior * matrix[:, code] / (prior @ matrix[:, code])
        mean = law @ channel.levels
        assert channel.likelihood(release.codes)[row] == pytest.approx(matrix[:, code])
        assert channel.posterior_mean(prior, release.codes)[row] == pytest.approx(mean)
        away = law @ (channel.levels - mean) ** 2
        assert channel.posterior_variance(prior, release.codes)[row] == pytest.approx(away)
    errors = (matrix * (channel.values[0] - channel.levels[:, None]) ** 2).sum(axis=1)
    assert channel.spread(prior) == pytest.approx(prior @ errors)
    assert channel.variances[0] == pytest.approx(errors)
    with pytest.raises(LabelDPError, match="have 5 columns"):
        channel.spread([0.5, 0.5])


def test_parts_with_different_priors_join():
    narrow = np.array([0.7, 0.2, 0.1, 0.0, 0.0])
    one, other = MECHANISM.channel(), MECHANISM.channel(narrow)
    whole = join_channels([one, other], counts=[2, 3])
    assert isinstance(whole, NumericChannel)
    assert (whole.matrix(1) == one.matrix()).all()
    assert (whole.matrix(4) == other.matrix()).all()
    assert (whole.take(np.array([4, 0])).decode([1, 1]) == [other.values[0, 1], one.values[0, 1]]).all()


# ------------------------------------------------------------------------------------------------ on disk


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A release of numbers with two rows of the channel."""
    laws = np.array([[0.6, 0.1, 0.1, 0.1, 0.1], [0.2, 0.2, 0.2, 0.2, 0.2]])
    groups = np.arange(40) % 2
    labeldp.privatize(np.linspace(0, 10, 40), MECHANISM, prior=laws, groups=groups).save(tmp_path / "out")
    return tmp_path / "out"


def renew(root: Path, **changes: Any) -> None:
    """Seal a changed release again, as anyone can."""
    manifest = {**json.loads((root / "release.json").read_text()), **changes}
    for name in manifest["files"]:
        manifest["files"][name] = file_facts(root / name)
    manifest["sha256"] = digest(manifest)
    (root / "release.json").write_text(json.dumps(manifest))


def rewrite(root: Path, name: str, **columns: Any) -> None:
    """Replace columns of a file of the release."""
    table = pq.read_table(root / name)
    kept = {column: columns.get(column, table[column]) for column in table.column_names}
    pq.write_table(pa.table(kept), root / name)


def test_a_release_of_numbers_comes_back(root: Path, tmp_path: Path):
    release = labeldp.load_release(root)
    assert pq.read_table(root / "labels.parquet").column_names == ["label", "row"]
    assert (pq.read_table(root / "labels.parquet")["label"].to_numpy() == release.values).all()
    release.save(tmp_path / "again")
    again = labeldp.load_release(tmp_path / "again")
    assert (again.values == release.values).all()
    assert (again.channel.transition == release.channel.transition).all()
    assert all(check.passed for check in audit(root).checks)
    with pytest.raises(LabelDPError, match=r"Use release\.values"):
        _ = release.labels
    with pytest.raises(LabelDPError, match="are not numbers"):
        _ = labeldp.privatize([0, 1], labeldp.RandomizedResponse(1.0, n_classes=2)).values


@pytest.mark.parametrize(
    ("number", "words"),
    [(3.14159, "be numbers of the channel"), (np.nan, "be numbers of the channel"), (None, "missing")],
)
def test_numbers_that_are_no_answers_are_refused(root: Path, number: Any, words: str):
    values = pq.read_table(root / "labels.parquet")["label"].to_pylist()
    rewrite(root, "labels.parquet", label=pa.array([number, *values[1:]], pa.float64()))
    renew(root)
    with pytest.raises(ReleaseError, match=words):
        labeldp.load_release(root)


def test_text_in_place_of_numbers_is_refused(root: Path):
    rewrite(root, "labels.parquet", label=pa.array(["1.0"] * 40))
    renew(root)
    with pytest.raises(ReleaseError):
        labeldp.load_release(root)


def test_a_channel_that_says_more_than_the_promise_is_refused(root: Path):
    table = pq.read_table(root / "channel.parquet")
    flat = np.array(table["transition"].to_pylist())
    sharp = flat.reshape(2, 5, -1) ** 2
    sharp /= sharp.sum(axis=2, keepdims=True)
    rewrite(root, "channel.parquet", transition=pa.FixedSizeListArray.from_arrays(sharp.ravel(), flat.shape[1]))
    renew(root)
    with pytest.raises(PrivacyError, match="claims"):
        labeldp.load_release(root)


@pytest.mark.parametrize("damage", ["levels", "falling", "infinite", "classes"])
def test_forged_levels_and_values_are_refused(root: Path, damage: str):
    manifest = json.loads((root / "release.json").read_text())
    if damage == "levels":
        renew(root, channel={**manifest["channel"], "levels": [0.0, 1.0, 5.0, 7.5, 10.0]})
    elif damage == "classes":
        renew(root, classes=[0.0, 1.0, 2.0, 3.0, 4.0])
    else:
        values = np.array(pq.read_table(root / "channel.parquet")["values"].to_pylist())
        values = values[:, ::-1] if damage == "falling" else np.where(values == values.max(), np.inf, values)
        flat = pa.FixedSizeListArray.from_arrays(np.ascontiguousarray(values).ravel(), values.shape[1])
        rewrite(root, "channel.parquet", values=flat)
        renew(root)
    with pytest.raises(ReleaseError):
        labeldp.load_release(root)


def test_the_mechanism_audit_bounds_epsilon_from_below():
    def run(codes: Any, mechanism: Any) -> Any:
        return labeldp.privatize(MECHANISM.levels[codes], mechanism).codes

    # A sound one is refuted with probability 1e-7 at most.
    asked: Any = {"n_draws": 200_000, "seed": 0, "confidence": 1 - 1e-7}
    sound = audit(Randomizer(run=lambda codes: run(codes, MECHANISM), n_classes=5, claimed=2.0), **asked)
    assert sound.passed
    assert 1.0 < (sound.lower_bound or 0.0) <= 2.0
    louder = MECHANISM.with_epsilon(3.0)
    assert not audit(Randomizer(run=lambda codes: run(codes, louder), n_classes=5, claimed=2.0), **asked).passed


def test_rounding_to_levels_keeps_the_mean_by_enumeration():
    """Every 2^16th first word, and a channel that shows the level: the mean is the number to the words' own step."""
    channel = NumericChannel(np.eye(5), levels=np.linspace(0, 4, 5), values=np.linspace(0, 4, 5))
    count = 1 << 16
    words = np.zeros((count, 2), np.uint64)
    words[:, 0] = np.arange(count, dtype=np.uint64) << np.uint64(48)
    for number in (0.0, 0.1, 1.5, 2.0, 3.999, 4.0):
        levels = channel.decode(channel.draw(np.full(count, number), words))
        assert set(levels.tolist()) <= {np.floor(number), np.ceil(number)}
        assert abs(levels.mean() - number) <= 1 / count  # words are 2^-16 apart


def test_the_expected_noise_of_a_group_has_the_same_bits_alone_and_among_others() -> None:
    """An owner has the channel of a stage, a receiver one of all stages: a BLAS sums the two in different orders."""
    rng = np.random.default_rng(0)
    matrices, levels = rng.dirichlet(np.ones(66), (12, 33)), np.linspace(0, 10, 33)
    values = np.sort(rng.uniform(-20, 30, (12, 66)), axis=1)
    whole = NumericChannel(matrices, levels=levels, values=values, index=np.arange(12))
    alone = [NumericChannel(one, levels=levels, values=its) for one, its in zip(matrices, values, strict=True)]
    for law in (None, rng.dirichlet(np.ones(33))):
        assert [float(one.spread(law)) for one in alone] == whole.spread(law).tolist()
