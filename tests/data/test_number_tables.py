"""Tables whose label is a number: what the files hold, and files that are not they."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labeldp.data import load
from labeldp.data.loaders import CLAIM_COLUMNS, HOUSING_COLUMNS
from labeldp.errors import LabelDPError


@pytest.mark.data
def test_houses_are_as_known(shared_data: Any):
    houses = load("california-housing", directory=shared_data("california-housing").parent)
    values = np.concatenate([houses.y_train, houses.y_test])
    assert len(values) == 20_433
    assert values.dtype == np.float64
    assert (values.min(), values.max()) == (0.14999, 5.00001)
    assert (houses.classes, houses.bounds, houses.exposure) == ((), (0.15, 5.0), None)
    assert repr(houses).endswith("9 features, numbers of `median_house_value`)")
    assert houses.table()["median_house_value"].to_numpy() == pytest.approx(houses.y_train)
    assert houses.matrix().train.shape == (len(houses.y_train), 13)


@pytest.mark.data
def test_claims_are_as_known(shared_data: Any):
    claims = load("motor-claims", directory=shared_data("motor-claims").parent)
    assert repr(claims).endswith("14 features, numbers of `nclaims`)")
    assert int(claims.y_train.sum() + claims.y_test.sum()) == 20_215
    assert len(claims.y_train) + len(claims.y_test) == 163_212
    assert len(claims.y_test) / 163_212 == pytest.approx(0.2, abs=0.005)  # the hash takes a fifth, five deviations wide
    assert claims.bounds == (0.0, 2.0)
    assert claims.exposure == "expo"
    years = claims.X_train["expo"].to_numpy()
    assert 0 < years.min() <= years.max() == 1.0
    assert not {"claim", "nclaims", "amount", "average"} & set(claims.feature_names)
    # 7 numbers; categories of five columns, 50 of the postcodes at most. Neither the policy's number nor its exposure is a feature.
    numbers = set(claims.feature_names) - {*claims.categorical, "id", "expo"}
    assert len(numbers) == 7
    assert claims.matrix().train.shape[1] == 7 + 3 + 2 + 2 + 2 + 50


@pytest.mark.parametrize(
    ("name", "file", "columns"),
    [
        ("california-housing", "housing.csv.gz", HOUSING_COLUMNS),
        ("motor-claims", "beMTPL97.csv.gz", CLAIM_COLUMNS),
    ],
)
def test_other_files_are_refused(name: str, file: str, columns: tuple[str, ...], tmp_path: Path):
    path = tmp_path / name / file
    path.parent.mkdir()
    row = ",".join("1" * len(columns))
    words = ",".join("a" * len(columns))
    for text in ("", "a,b\n1,2\n", f"{','.join(columns)}\n{row}\n", f"{','.join(columns)}\n{words}\n"):
        path.write_bytes(gzip.compress(text.encode()))
        with pytest.raises(LabelDPError, match=file.replace(".", r"\.")):
            load(name, directory=tmp_path)
