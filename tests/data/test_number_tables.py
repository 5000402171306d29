"""Tables whose label is a number: what the files hold, and files that are not they."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from labeldp.data import california_housing, motor_claims
from labeldp.data.loaders import CLAIM_COLUMNS, HOUSING_COLUMNS
from labeldp.errors import LabelDPError


@pytest.mark.data
def test_houses_and_claims_are_as_known(shared_data: Any):
    houses = california_housing(shared_data("california-housing").parent)
    assert repr(houses) == "NumberTable('california-housing', 20,640 rows, 9 features)"
    assert houses.bounds == (0.15, 5.0)
    assert houses.exposure is None
    claims = motor_claims(shared_data("motor-claims").parent)
    assert repr(claims) == "NumberTable('motor-claims', 163,212 rows, 13 features)"
    assert int(claims.y.sum()) == 20_215
    assert claims.exposure is not None
    assert 0 < claims.exposure.min() <= claims.exposure.max() == 1.0


@pytest.mark.parametrize(
    ("load", "place", "columns"),
    [
        (california_housing, "california-housing/housing.csv.gz", HOUSING_COLUMNS),
        (motor_claims, "motor-claims/beMTPL97.csv.gz", CLAIM_COLUMNS),
    ],
)
def test_other_files_are_refused(load: Any, place: str, columns: tuple[str, ...], tmp_path: Path):
    path = tmp_path / place
    path.parent.mkdir()
    for text in ("", "a,b\n1,2\n", ",".join(columns) + "\n" + ",".join("1" * len(columns)) + "\n"):
        path.write_bytes(gzip.compress(text.encode()))
        with pytest.raises(LabelDPError, match=path.name.replace(".", r"\.")):
            load(tmp_path)
