"""Tables about people, with text and numbers side by side: Adult (bundled), credit default, diabetes readmission.

>>> adult()
Dataset('adult', 32,561 train + 16,281 test rows, 14 features, 2 classes of `income`)

Design notes. "?" is a category of its own: that someone did not answer is information, and dropping those rows
would change the population. Row numbers and person numbers stay in the table as `identifiers` (an owner needs them
for her ledger), and `Dataset.matrix` leaves them out. A person never stands on both sides of a split.
"""

from __future__ import annotations

import io
import os
import zipfile
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from labeldp.data._dataset import CodeArray, Dataset
from labeldp.data._files import expect, find, read_bytes, reading
from labeldp.data._split import held_out

Directory = str | os.PathLike[str] | None

CREDIT_COLUMNS = (
    "ID", "LIMIT_BAL", "SEX", "EDUCATION", "MARRIAGE", "AGE",
    *(f"{kind}{month}" for kind in ("PAY_", "BILL_AMT", "PAY_AMT") for month in range(1, 7)),
    "default.payment.next.month",
)  # fmt: skip
CREDIT_CATEGORIES = ("SEX", "EDUCATION", "MARRIAGE", *(f"PAY_{month}" for month in range(1, 7)))

STAY_NUMBERS = (
    "encounter_id", "patient_nbr", "time_in_hospital", "num_lab_procedures", "num_procedures", "num_medications",
    "number_outpatient", "number_emergency", "number_inpatient", "number_diagnoses",
)  # fmt: skip
STAY_IDENTIFIERS = ("encounter_id", "patient_nbr")


def codes_of(column: Any, classes: tuple[str, ...]) -> CodeArray:
    """The position of each value in `classes`; a value that is not there becomes -1."""
    found = pc.index_in(column.cast(pa.string()), value_set=pa.array(classes))
    codes: CodeArray = pc.fill_null(found, -1).to_numpy().astype(np.int64)
    return codes


def adult(_directory: Directory = None) -> Dataset:
    """Load Adult, bundled: 32,561 + 16,281 people of the US census of 1994, income above 50,000 dollars or not."""
    path = Path(str(files("labeldp.data") / "adult.parquet"))
    with reading(path, "the bundled Parquet of Adult"):
        table = pq.read_table(path)
    test = np.asarray(pc.equal(table["split"].cast(pa.string()), "test"))
    classes = ("<=50K", ">50K")
    y = codes_of(table["income"], classes)
    X = table.drop_columns(["split", "income"]).replace_schema_metadata()
    part_sizes = [int((~test).sum()), int(y[~test].sum()), int(test.sum()), int(y[test].sum())]
    expect(path, "(rows, rows over 50K) of train and test", want=[32_561, 7_841, 16_281, 3_846], got=part_sizes)
    return Dataset(
        name="adult",
        X_train=X.filter(pa.array(~test)),
        y_train=y[~test],
        X_test=X.filter(pa.array(test)),
        y_test=y[test],
        classes=classes,
        feature_names=tuple(X.column_names),
        label_name="income",
        sensitive_label="whether a person earns more than 50,000 dollars a year",
        licence="CC BY 4.0",
        citation=(
            "Becker, B. and Kohavi, R. (1996). Adult. UCI Machine Learning Repository, "
            "https://doi.org/10.24432/C5XW20. CC BY 4.0; spaces and the dot after test labels stripped."
        ),
        categorical=tuple(field.name for field in X.schema if pa.types.is_dictionary(field.type)),
    )


def credit_default(directory: Directory = None) -> Dataset:
    """Load 30,000 credit cards of Taiwan, 2005: was the next payment missed? A fifth of the rows is the test part."""
    (path,) = find("credit-default", ("UCI_Credit_Card.csv.gz",), directory=directory)
    with reading(path, "a CSV of 25 columns"):
        table = pa_csv.read_csv(io.BytesIO(read_bytes(path)))
    # One of the copies in circulation calls the first month of payment PAY_0.
    names = ["PAY_1" if name == "PAY_0" else name for name in table.column_names]
    expect(path, "the columns", want=list(CREDIT_COLUMNS), got=names)
    table = table.rename_columns(names)
    y = table[CREDIT_COLUMNS[-1]].to_numpy().astype(np.int64)
    expect(path, "rows and defaults", want=(30_000, 6_636), got=(len(y), int(y.sum())))
    return _split_table(
        name="credit-default",
        X=table.drop_columns([CREDIT_COLUMNS[-1]]),
        y=y,
        test=held_out(table["ID"].to_numpy(), share=0.2),
        classes=("paid", "default"),
        label_name="default",
        sensitive_label="whether a person failed to pay the next credit card bill",
        citation=(
            "Yeh, I. (2009). Default of Credit Card Clients. UCI Machine Learning Repository, "
            "https://doi.org/10.24432/C55S3H. CC BY 4.0."
        ),
        categorical=CREDIT_CATEGORIES,
        identifiers=("ID",),
    )


def diabetes_readmission(directory: Directory = None) -> Dataset:
    """Load 101,766 hospital stays of people with diabetes: readmitted within 30 days, later, or not.

    A fifth of the patients, by hash of the patient's number, with all their stays is the test part.
    """
    (path,) = find("diabetes-readmission", ("dataset_diabetes.zip",), directory=directory)
    with reading(path, "a zip that holds dataset_diabetes/diabetic_data.csv"), zipfile.ZipFile(path) as archive:
        table = _stays(archive.read("dataset_diabetes/diabetic_data.csv"))
    expect(path, "rows and columns", want=(101_766, 50), got=table.shape)
    classes = ("NO", ">30", "<30")
    X = table.drop_columns(["readmitted"])
    return _split_table(
        name="diabetes-readmission",
        X=X,
        y=codes_of(table["readmitted"], classes),
        test=held_out(table["patient_nbr"].to_numpy(), share=0.2),
        classes=classes,
        label_name="readmitted",
        sensitive_label="whether, and how soon, a patient came back to hospital",
        citation=(
            "Clore, J., Cios, K., DeShazo, J. and Strack, B. (2014). Diabetes 130-US Hospitals for Years 1999-2008. "  # codespell:ignore strack
            "UCI Machine Learning Repository, https://doi.org/10.24432/C5230J. CC BY 4.0."
        ),
        categorical=tuple(name for name in X.column_names if name not in STAY_NUMBERS),
        identifiers=STAY_IDENTIFIERS,
    )


def _stays(content: bytes) -> Any:
    """The CSV with counts as numbers and everything else, codes and "?" included, as text."""
    header = content[: content.index(b"\n")].decode().strip().split(",")
    types = {name: pa.int64() if name in STAY_NUMBERS else pa.string() for name in header}
    return pa_csv.read_csv(io.BytesIO(content), convert_options=pa_csv.ConvertOptions(column_types=types))


def _split_table(
    *,
    name: str,
    X: Any,
    y: CodeArray,
    test: Any,
    classes: tuple[str, ...],
    label_name: str,
    sensitive_label: str,
    citation: str,
    categorical: tuple[str, ...],
    identifiers: tuple[str, ...],
) -> Dataset:
    return Dataset(
        name=name,
        X_train=X.filter(pa.array(~test)),
        y_train=y[~test],
        X_test=X.filter(pa.array(test)),
        y_test=y[test],
        classes=classes,
        feature_names=tuple(X.column_names),
        label_name=label_name,
        sensitive_label=sensitive_label,
        licence="CC BY 4.0",
        citation=citation,
        categorical=categorical,
        identifiers=identifiers,
    )
