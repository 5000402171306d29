"""What stands in a release: sound ones pass whatever their labels are, and each check fails on a twin with one fault."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import labeldp
from labeldp.audit import audit, contents
from labeldp.audit.contents import looks_raw, plausible_check, support_check
from labeldp.engines import privatize_table
from labeldp.errors import LabelDPError
from labeldp.release.columns import clean_field, clean_metadata, find_metadata

N = 2000


def released(labels: Any, epsilon: float = 1.0) -> Any:
    return labeldp.privatize(labels, labeldp.RandomizedResponse(epsilon, n_classes=2))


@pytest.mark.parametrize("labels", [np.zeros(N, int), np.arange(N) % 2, np.arange(N) // (N // 2)])
def test_a_sound_release_fails_no_more_often_than_stated(labels: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the labels that are hardest, all of one class, too. The level is raised to 5 % to have something to count.

    Of 100 sound releases 5 may fail; 20 or more would with probability below 1e-6.
    """
    monkeypatch.setattr(contents, "LEVEL", 0.05)
    assert sum(not plausible_check(released(labels)).passed for _ in range(100)) < 20


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_shares_that_no_labels_explain_are_found(epsilon: float) -> None:
    """All rows of one class, with four fifths of the noise left out: N rows tell that apart at these epsilons.

    At epsilon 2 the share of the other class falls from .119 to .024, and the check asks for .063 at its level: a miss needs
    a chance deviation of 9 standard deviations.
    """
    sound = released(np.zeros(N, int), epsilon)
    kept = np.random.default_rng(1).random(N) < 0.8
    assert plausible_check(sound).passed
    assert not plausible_check(replace(sound, codes=np.where(kept, 0, sound.codes).astype(np.uint8))).passed


def test_an_infinite_epsilon_explains_everything() -> None:
    release = labeldp.privatize(np.zeros(N, int), labeldp.RandomizedResponse(float("inf"), n_classes=2))
    assert support_check(release).passed
    assert plausible_check(release).passed


def test_outputs_that_the_channel_does_not_have() -> None:
    wrong = replace(released(np.arange(N) % 2), codes=np.full(N, 7, np.uint8))
    assert not support_check(wrong).passed
    assert not plausible_check(wrong).passed
    assert not audit(wrong, labels=np.arange(N) % 2).passed


#: What lies under a mask is no label.
MASKED = np.ma.array(np.arange(N) % 2, mask=np.arange(N) % 7 == 0)


@pytest.mark.parametrize("labels", [np.zeros(3, int), np.zeros(N), np.full(N, 2), np.full(N, -1), MASKED])
def test_labels_that_are_no_codes_of_the_release_are_refused(labels: Any) -> None:
    with pytest.raises(LabelDPError, match="labels"):
        audit(released(np.arange(N) % 2), labels=labels)


def test_a_label_that_is_no_candidate_says_nothing_about_a_column() -> None:
    """Codes that the channel cannot give agree never, which is what it promises: that is no sign of raw labels."""
    prior = np.tile([0.4, 0.4, 0.1, 0.1], (N, 1))
    release = labeldp.privatize(np.arange(N) % 4, labeldp.RRTopK(1.0, k=2), prior=prior)
    assert not looks_raw(release, np.full(N, 3))
    raw = np.arange(N) % 4
    assert looks_raw(release, raw)  # and the raw labels are still found, by the rows whose label is a candidate


def test_metadata_inside_of_a_type_is_found_and_cleaned() -> None:
    inner = pa.field("a", pa.int64(), metadata={"seen": "17"})
    for kind in (pa.struct([inner]), pa.list_(inner), pa.large_list(inner), pa.list_(inner, 2)):
        field = pa.field("x", kind)
        assert [*find_metadata(pa.schema([field]))] == ["x.a"]
        assert not [*find_metadata(pa.schema([clean_field(field)]))]


def test_cleaning_metadata_twice_changes_nothing() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(
        {"x": [1.0], "c": pd.Categorical(["a"]), "t": pd.to_datetime(["2020-01-01"]).tz_localize("UTC")}
    )
    frame.attrs["positives"] = 17
    schema = pa.Schema.from_pandas(frame)
    once = clean_metadata(schema.metadata, columns=schema.names, label="c")
    assert once is not None
    assert b"positives" not in once[b"pandas"]
    assert clean_metadata(once, columns=schema.names, label="c") == once


@pytest.mark.parametrize("places", [pa.uint8(), pa.uint32(), pa.int8()])
def test_a_column_of_categories_is_no_sign_of_raw_labels(places: Any, tmp_path: Path) -> None:
    """polars numbers the categories of a table by unsigned integers, which have no -1 for what is missing."""
    towns = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 1] * (N // 4), places), ["Bern", "Chur"])
    pq.write_table(pa.table({"town": towns, "ill": np.arange(N) % 2}), tmp_path / "people.parquet")
    privatize_table(tmp_path / "people.parquet", label="ill", to=tmp_path / "release", epsilon=1.0, classes=[0, 1])
    checks = {check.name: check for check in audit(tmp_path / "release").checks}
    assert checks["no raw label column"].passed, checks["no raw label column"].detail
    assert checks["outputs plausible"].passed, checks["outputs plausible"].detail
