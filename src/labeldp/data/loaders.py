"""The data sets by name: pictures, tables about people, multi-label sets, ratings, numbers, and counts of cases.

>>> load("adlut")
Traceback (most recent call last):
...
labeldp.errors.LabelDPError: load: `name` must be a known data set, got 'adlut'. Did you mean `adult`?

*Pictures* with a class each (`labeldp.data.pictures`): digits (bundled with scikit-learn), MNIST, Fashion-MNIST, KMNIST,
CIFAR-10, CIFAR-100. *Tables* about people, with text and numbers side by side: Adult (bundled), credit default, diabetes readmission. *Multi-label* sets: text tags,
genes, scenes, moods. *Texts*: CLINC150. *Ratings*: MovieLens 1M. *Numbers*: house values of California, motor claims of
Belgium. *Counts*: COVID-19 cases by state and day.

References: the multi-label sets and their train/test parts are those of Mulan (Tsoumakas et al., JMLR 12, 2011), as the
package scikit-multilearn carried them. Harper and Konstan, "The MovieLens datasets: history and context", ACM TiiS 5(4),
2015. The New York Times, "Coronavirus (Covid-19) Data in the United States", https://github.com/nytimes/covid-19-data.
Each `Dataset` cites its own source.

Design notes. In tables "?" is a category of its own: that someone did not answer is information, and dropping those rows
would change the population. Row numbers and person numbers stay in the table as `identifiers` (an owner needs them for
her ledger), and `Dataset.matrix` leaves them out. A person never stands on both sides of a split.

Multi-label sets are one npz each, in the folder ``multilabel``. Labels come as an indicator matrix, uint8, with a column
per label; the files hold no names, so labels and features are numbered.

Licences decide what is bundled: GroupLens allows research and no redistribution, and the cases of The New York Times are
for non-commercial use with attribution, so neither ever is.
"""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from labeldp.arrays import Int64s
from labeldp.data.dataset import (
    Dataset,
    choose_test_rows,
    expect,
    explain_damage,
    find_files,
    read_bytes,
    read_npz,
)
from labeldp.data.pictures import Directory, cifar10, cifar100, digits, fashion_mnist, kmnist, mnist
from labeldp.errors import Described, invalid, nearest

#: These two come with the package and with scikit-learn; all others are read from the user's folder.
BUNDLED = ("adult", "digits")


def load(name: str, *, directory: Directory = None) -> Dataset:
    """Return a data set, read and checked.

    `directory` is the folder that has a folder per data set; without it the environment variable LABELDP_DATA names
    it. The bundled sets need neither. An absent file is an error that names it; nothing is ever downloaded.
    """
    if name not in _LOADERS:
        raise invalid("load", "name", "be a known data set", got=name, fix=nearest(name, names()))
    return _LOADERS[name](directory)


def names(*, bundled: bool = False) -> tuple[str, ...]:
    """Return the names that `load` knows; with ``bundled=True``, those that need no files of yours.

    >>> names(bundled=True)
    ('adult', 'digits')
    """
    return BUNDLED if bundled else tuple(sorted(_LOADERS))


CREDIT_COLUMNS = (
    "ID", "LIMIT_BAL", "SEX", "EDUCATION", "MARRIAGE", "AGE",
    *(f"{kind}{month}" for kind in ("PAY_", "BILL_AMT", "PAY_AMT") for month in range(1, 7)),
    "default.payment.next.month",
)  # fmt: skip
CREDIT_CATEGORIES = ("SEX", "EDUCATION", "MARRIAGE", *(f"PAY_{month}" for month in range(1, 7)))
HOUSING_COLUMNS = (
    "longitude", "latitude", "housing_median_age", "total_rooms", "total_bedrooms", "population", "households",
    "median_income", "median_house_value", "ocean_proximity",
)  # fmt: skip
CLAIM_COLUMNS = (
    "id", "expo", "claim", "nclaims", "amount", "average", "coverage", "ageph", "sex", "bm", "power", "agec", "fuel",
    "use", "fleet", "postcode", "long", "lat",
)  # fmt: skip
STAY_NUMBERS = (
    "encounter_id", "patient_nbr", "time_in_hospital", "num_lab_procedures", "num_procedures", "num_medications",
    "number_outpatient", "number_emergency", "number_inpatient", "number_diagnoses",
)  # fmt: skip
STAY_IDENTIFIERS = ("encounter_id", "patient_nbr")


def adult(_directory: Directory = None) -> Dataset:
    """Load Adult, bundled: 32,561 + 16,281 people of the US census of 1994, income above 50,000 dollars or not.

    >>> adult()
    Dataset('adult', 32,561 train + 16,281 test rows, 14 features, 2 classes of `income`)
    """
    path = Path(str(files("labeldp.data") / "adult.parquet"))
    with explain_damage(path, "the bundled Parquet of Adult"):
        table = pq.read_table(path)
    test = np.asarray(pc.equal(table["split"].cast(pa.string()), "test"))
    classes = ("<=50K", ">50K")
    y = encode_classes(table["income"], classes)
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
    (path,) = find_files("credit-default", ("UCI_Credit_Card.csv.gz",), directory=directory)
    with explain_damage(path, "a CSV of 25 columns"):
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
        test=choose_test_rows(table["ID"].to_numpy(), share=0.2),
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
    (path,) = find_files("diabetes-readmission", ("dataset_diabetes.zip",), directory=directory)
    with explain_damage(path, "a zip that holds dataset_diabetes/diabetic_data.csv"), zipfile.ZipFile(path) as archive:
        table = _read_stays(archive.read("dataset_diabetes/diabetic_data.csv"))
    expect(path, "rows and columns", want=(101_766, 50), got=table.shape)
    classes = ("NO", ">30", "<30")
    X = table.drop_columns(["readmitted"])
    return _split_table(
        name="diabetes-readmission",
        X=X,
        y=encode_classes(table["readmitted"], classes),
        test=choose_test_rows(table["patient_nbr"].to_numpy(), share=0.2),
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


def california_housing(directory: Directory = None) -> Dataset:
    """Load 20,433 districts of California, 1990: the median house value, in units of 100,000 dollars, from .14999 to 5.00001.

    207 districts without a number of bedrooms are left out. A fifth of the rows, by hash of their place, is the test part.
    """
    (path,) = find_files("california-housing", ("housing.csv.gz",), directory=directory)
    with explain_damage(path, "a CSV of 10 columns"):
        table = pa_csv.read_csv(io.BytesIO(read_bytes(path)))
    expect(path, "the columns", want=list(HOUSING_COLUMNS), got=table.column_names)
    table = table.filter(pc.is_valid(table["total_bedrooms"]))
    with explain_damage(path, "a CSV whose column median_house_value holds numbers"):
        value = table["median_house_value"].to_numpy().astype(np.float64)
    expect(
        path, "rows, and the sum of values", want=(20_433, 4_226_860_554), got=(len(value), round(float(value.sum())))
    )
    return _split_table(
        name="california-housing",
        X=table.drop_columns(["median_house_value"]),
        y=value / 1e5,
        test=choose_test_rows(np.arange(len(value)), share=0.2),
        label_name="median_house_value",
        sensitive_label="what houses of a district are worth (a stand-in for an amount: nothing about a person)",
        licence="not stated with the files",
        citation=(
            "Pace, R. K. and Barry, R. (1997). Sparse spatial autoregressions. Statistics and Probability Letters 33(3), "
            "291-297; the copy with the column ocean_proximity."
        ),
        categorical=("ocean_proximity",),
        bounds=(0.15, 5.0),
    )


def motor_claims(directory: Directory = None) -> Dataset:
    """Load beMTPL97: 163,212 motor policies of Belgium, 1997, and how many claims each had.

    The column `expo` is the exposure, the share of the year that a policy was in force. Whether there was a claim and what it
    cost are labels too, and left out. A fifth of the rows, by hash of their place, is the test part.
    """
    (path,) = find_files("motor-claims", ("beMTPL97.csv.gz",), directory=directory)
    with explain_damage(path, "a CSV of 18 columns"):
        table = pa_csv.read_csv(io.BytesIO(read_bytes(path)))
    expect(path, "the columns", want=list(CLAIM_COLUMNS), got=table.column_names)
    with explain_damage(path, "a CSV whose column nclaims holds counts"):
        count = table["nclaims"].to_numpy().astype(np.float64)
    expect(path, "rows and claims", want=(163_212, 20_215), got=(len(count), int(count.sum())))
    return _split_table(
        name="motor-claims",
        X=table.drop_columns(["claim", "nclaims", "amount", "average"]),
        y=count,
        test=choose_test_rows(np.arange(len(count)), share=0.2),
        label_name="nclaims",
        sensitive_label="how many accidents a person claimed for",
        licence="not stated with the files; for studies only",
        citation=(
            "Dutang, C. and Charpentier, A. CASdatasets: insurance datasets, beMTPL97; Denuit, M. and Lang, S. (2004). "
            "Non-life rate-making with Bayesian GAMs. Insurance: Mathematics and Economics 35, 627-647."
        ),
        categorical=("coverage", "sex", "fuel", "use", "postcode"),
        identifiers=("id",),
        exposure="expo",
        bounds=(0.0, 2.0),
    )


def _read_stays(content: bytes) -> Any:
    """Return the CSV with counts as numbers and everything else, codes and "?" included, as text."""
    header = content[: content.index(b"\n")].decode().strip().split(",")
    types = {name: pa.int64() if name in STAY_NUMBERS else pa.string() for name in header}
    return pa_csv.read_csv(io.BytesIO(content), convert_options=pa_csv.ConvertOptions(column_types=types))


def encode_classes(column: Any, classes: tuple[str, ...]) -> Int64s:
    """Return the position of each value in `classes`; a value that is not there becomes -1."""
    found = pc.index_in(column.cast(pa.string()), value_set=pa.array(classes))
    codes: Int64s = pc.fill_null(found, -1).to_numpy().astype(np.int64)
    return codes


def _split_table(
    *,
    name: str,
    X: Any,
    y: npt.NDArray[Any],
    test: Any,
    label_name: str,
    sensitive_label: str,
    citation: str,
    categorical: tuple[str, ...],
    classes: tuple[str, ...] = (),
    licence: str = "CC BY 4.0",
    identifiers: tuple[str, ...] = (),
    exposure: str | None = None,
    bounds: tuple[float, float] | None = None,
) -> Dataset:
    """Return a data set whose rows are divided by the mask `test`."""
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
        licence=licence,
        citation=citation,
        categorical=categorical,
        identifiers=identifiers,
        exposure=exposure,
        bounds=bounds,
    )


#: name -> (train rows, test rows, features, labels)
SHAPES = {
    "bibtex": (4_880, 2_515, 1_836, 159),
    "corel5k": (4_500, 500, 499, 374),
    "delicious": (12_920, 3_185, 500, 983),
    "emotions": (391, 202, 72, 6),
    "enron": (1_123, 579, 1_001, 53),
    "mediamill": (30_993, 12_914, 120, 101),
    "medical": (333, 645, 1_449, 45),
    "scene": (1_211, 1_196, 294, 6),
    "tmc2007-500": (21_519, 7_077, 500, 22),
    "yeast": (1_500, 917, 103, 14),
}
ABOUT = {
    "bibtex": "which tags a person gave to a reference",
    "corel5k": "what a photograph shows",
    "delicious": "which tags a person gave to a page",
    "emotions": "which emotions a piece of music raises",
    "enron": "what an employee's e-mail is about",
    "mediamill": "what a scene of the news shows",
    "medical": "which diagnoses a radiology report supports",
    "scene": "what kind of place a photograph shows",
    "tmc2007-500": "which problems a flight report tells of",
    "yeast": "which functions a gene has",
}


def multilabel(name: str, directory: Directory = None) -> Dataset:
    """Load one of the multi-label sets of `SHAPES`, checked against its known shape.

    >>> sorted(SHAPES)[:3]
    ['bibtex', 'corel5k', 'delicious']
    """
    (path,) = find_files("multilabel", (f"{'Corel5k' if name == 'corel5k' else name}.npz",), directory=directory)
    X_key = "X_micro" if name == "mediamill" else "X"
    X_train, y_train, X_test, y_test = read_npz(path, (f"{X_key}_train", "y_train", f"{X_key}_test", "y_test"))
    n_train, n_test, n_features, n_labels = SHAPES[name]
    found = (X_train.shape, y_train.shape, X_test.shape, y_test.shape)
    want = ((n_train, n_features), (n_train, n_labels), (n_test, n_features), (n_test, n_labels))
    expect(path, "X and y of shapes", want=want, got=found)
    return Dataset(
        name=name,
        X_train=_read_numbers(X_train, X_key),
        y_train=_read_indicators(name, y_train),
        X_test=_read_numbers(X_test, X_key),
        y_test=_read_indicators(name, y_test),
        classes=tuple(f"label_{i}" for i in range(n_labels)),
        feature_names=tuple(f"feature_{i}" for i in range(n_features)),
        label_name="labels",
        sensitive_label=ABOUT[name],
        licence="not stated with the files",
        citation=(
            "Tsoumakas, G., Spyromitros-Xioufis, E., Vilcek, J. and Vlahavas, I. (2011). Mulan: A Java library for "
            "multi-label learning. JMLR 12, 2411-2414; there the source of each set is given."
        ),
    )


def _read_numbers(X: npt.NDArray[Any], key: str) -> npt.NDArray[np.float32]:
    """Return features as float32; mediamill's file keeps millionths as whole numbers."""
    rows = X.astype(np.float32)
    return rows / np.float32(1e6) if key == "X_micro" else rows


def _read_indicators(name: str, y: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Return a matrix of labels as uint8; entries other than 0 and 1 are refused."""
    if y.max(initial=0) > 1 or y.min(initial=0) < 0:
        raise invalid("load", name, "have labels that are 0 or 1", got=Described(f"{y.min()} to {y.max()}"))
    return y.astype(np.uint8)


INTENT_FILES = ("train.csv.gz", "val.csv.gz", "test.csv.gz")


def clinc150(directory: Directory = None, *, validation: bool = False) -> Dataset:
    """Load CLINC150: what someone wants of an assistant, 15,000 + 4,500 sentences of 150 intents, in one column `text`.

    With `validation` the second part are the 3,000 sentences that the authors set apart for choosing settings.
    """
    paths = find_files("clinc150", INTENT_FILES, directory=directory)
    first, second = (
        _read_intents(paths[i], rows) for i, rows in ((0, 15_000), (1, 3_000) if validation else (2, 4_500))
    )
    classes = tuple(sorted(set(first["intent"].to_pylist())))
    expect(paths[0], "intents", want=150, got=len(classes))
    return Dataset(
        name="clinc150",
        X_train=first.select(["text"]),
        y_train=encode_classes(first["intent"], classes),
        X_test=second.select(["text"]),
        y_test=encode_classes(second["intent"], classes),
        classes=classes,
        feature_names=("text",),
        label_name="intent",
        sensitive_label="what a person wanted of an assistant",
        licence="CC BY 3.0",
        citation=(
            "Larson, S. et al. (2019). An Evaluation Dataset for Intent Classification and Out-of-Scope Prediction. "
            "EMNLP-IJCNLP 2019, 1311-1316. The sentences in scope, https://github.com/clinc/oos-eval. CC BY 3.0."
        ),
        texts=("text",),
    )


def _read_intents(path: Path, rows: int) -> Any:
    """Return a table of `text` and `intent`; each intent has as many sentences as any other."""
    with explain_damage(path, "a CSV of text and intent"):
        types = {"text": pa.string(), "intent": pa.string()}
        options = pa_csv.ConvertOptions(column_types=types)
        table = pa_csv.read_csv(io.BytesIO(read_bytes(path)), convert_options=options)
    expect(path, "the columns", want=["text", "intent"], got=table.column_names)
    expect(path, "rows", want=rows, got=table.num_rows)
    counts = set(pc.value_counts(table["intent"]).field(1).to_pylist())
    expect(path, "sentences of an intent", want={rows // 150}, got=counts)
    return table


MOVIE_FILES = ("ratings.dat", "users.dat", "movies.dat")
GENRES = (
    "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary", "Drama", "Fantasy",
    "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western",
)  # fmt: skip


def movielens_1m(directory: Directory = None) -> Dataset:
    """Load MovieLens 1M: 1,000,209 ratings from 1 to 5 by 6,040 people, from the files as GroupLens gives them out.

    A rating is one row; who and which film are `identifiers`, the features of both are columns. A fifth of the rows, by
    hash of the position, is the test part, so that the users and films of the test part are known in training, as
    recommenders assume.

    >>> movielens_1m(directory="no/such/folder")
    Traceback (most recent call last):
    ...
    labeldp.errors.LabelDPError: load: `directory` must hold movielens-1m/ratings.dat, got no such file. ...
    """
    ratings_path, users_path, movies_path = find_files("movielens-1m", MOVIE_FILES, directory=directory)
    user, movie, rating, timestamp = _read_columns(ratings_path, rows=1_000_209, columns=4)
    columns: dict[str, Any] = {"user_id": user, "movie_id": movie, "timestamp": timestamp}
    columns |= _read_people(users_path, user) | _read_genres(movies_path, movie)
    X, y = pa.table(columns), rating.astype(np.int64) - 1
    test = choose_test_rows(np.arange(len(y)), share=0.2)
    return Dataset(
        name="movielens-1m",
        X_train=X.filter(pa.array(~test)),
        y_train=y[~test],
        X_test=X.filter(pa.array(test)),
        y_test=y[test],
        classes=("1", "2", "3", "4", "5"),
        feature_names=tuple(X.column_names),
        label_name="rating",
        sensitive_label="how many stars a person gave to a film",
        licence="GroupLens: research use, no redistribution",
        citation=(
            "Harper, F. M. and Konstan, J. A. (2015). The MovieLens Datasets: History and Context. ACM Transactions "
            "on Interactive Intelligent Systems 5(4), https://doi.org/10.1145/2827872."
        ),
        categorical=("gender", "age", "occupation"),
        identifiers=("user_id", "movie_id"),
    )


def _read_columns(path: Path, *, rows: int, columns: int) -> list[npt.NDArray[Any]]:
    """Read a file whose fields stand between double colons: between single ones, with empty columns to skip."""
    names = [f"{kind}{i}" for i in range(columns) for kind in ("field", "gap")][:-1]
    with explain_damage(path, f"a file of {columns} fields between double colons"):
        table = pa_csv.read_csv(
            path,
            read_options=pa_csv.ReadOptions(column_names=names, encoding="latin-1"),
            parse_options=pa_csv.ParseOptions(delimiter=":", quote_char=False),
            convert_options=pa_csv.ConvertOptions(include_columns=names[::2]),
        )
    expect(path, "rows", want=rows, got=table.num_rows)
    return [column.to_numpy() for column in table.columns]


def _read_people(path: Path, user: npt.NDArray[Any]) -> dict[str, Any]:
    """Return gender, age group and occupation of the user of each rating; users are numbered from 1, without gaps."""
    number, gender, age, occupation, _zip = _read_columns(path, rows=6_040, columns=5)
    expect(path, "user numbers", want=[1, 6_040], got=[int(number[0]), int(number[-1])])
    row = user - 1
    return {"gender": pa.array(gender[row].astype(str)), "age": age[row], "occupation": occupation[row]}


def _read_genres(path: Path, movie: npt.NDArray[Any]) -> dict[str, Any]:
    """Return a column of zeros and ones per genre. Film numbers have gaps and titles have colons, hence the loop."""
    with explain_damage(path, "a file of number::title::genres"):
        lines = [line.split("::") for line in path.read_text(encoding="latin-1").splitlines()]
        expect(path, "rows", want=3_883, got=len(lines))
        table = np.zeros((max(int(line[0]) for line in lines) + 1, len(GENRES)), np.uint8)
        for number, _title, genres in lines:
            for genre in genres.split("|"):
                table[int(number), GENRES.index(genre)] = 1
        of_rating = table[movie]
    return {f"genre_{name}": of_rating[:, i] for i, name in enumerate(GENRES)}


COVID_FILE = "us-states.csv.gz"
COVID_COLUMNS = ("date", "state", "fips", "cases", "deaths")


def us_covid(directory: str | os.PathLike[str] | None = None) -> StateCases:
    """Read the COVID-19 cases of all states and territories from ``us-covid/us-states.csv`` (or its ``.gz``).

    Counts of people, for studies of private selection. No row has a label of its own, so this is no `Dataset` and `load`
    does not know it. A state that a day's report does not name has no case yet. Reports are corrected later, so that a
    few totals fall from one day to the next; new cases are then 0, since a count of people is not negative.

    >>> us_covid(directory="no/such/folder")
    Traceback (most recent call last):
    ...
    labeldp.errors.LabelDPError: load: `directory` must hold us-covid/us-states.csv.gz, got no such file. ...
    """
    (path,) = find_files("us-covid", (COVID_FILE,), directory=directory)
    with explain_damage(path, "a table of date, state, fips, cases and deaths"):
        table = pa_csv.read_csv(io.BytesIO(read_bytes(path)))
        expect(path, "columns", want=COVID_COLUMNS, got=tuple(table.column_names))
        day, state = (
            table[name].cast(pa.string()).to_numpy(zero_copy_only=False).astype(str) for name in COVID_COLUMNS[:2]
        )
        cases = table["cases"].to_numpy().astype(np.int64)
        days, row = np.unique(day, return_inverse=True)
        states, column = np.unique(state, return_inverse=True)
        expect(path, "rows for each day and state", want=1, got=int(np.bincount(row * states.size + column).max()))
        totals = np.zeros((days.size, states.size), np.int64)
        totals[row, column] = cases
    return StateCases(days=tuple(days.tolist()), states=tuple(states.tolist()), totals=totals)


@dataclass(frozen=True, kw_only=True, eq=False)
class StateCases:
    """Cases by day and state. `days`: ISO dates, rising; `states`: sorted names; `totals`: cases so far (days, states)."""

    days: tuple[str, ...]
    states: tuple[str, ...]
    totals: Int64s

    def __repr__(self) -> str:
        return f"StateCases({len(self.days)} days from {self.days[0]}, {len(self.states)} states)"

    def new(self) -> Int64s:
        """Return the new cases of each day; on the first, all so far."""
        first = np.zeros((1, len(self.states)), np.int64)
        changes: Int64s = np.diff(self.totals, axis=0, prepend=first)
        return np.maximum(changes, 0)

    def between(self, first_day: str, *, days: int) -> tuple[Int64s, Int64s]:
        """Return totals and new cases of so many days from `first_day` on."""
        if first_day not in self.days or self.days.index(first_day) + days > len(self.days):
            got = Described(f"{days} days from {first_day}")
            raise invalid("StateCases", "first_day", f"lie in {self.days[0]} to {self.days[-1]}", got=got)
        part = slice(self.days.index(first_day), self.days.index(first_day) + days)
        return self.totals[part], self.new()[part]


_LOADERS: dict[str, Callable[[Directory], Dataset]] = {
    "adult": adult,
    "california-housing": california_housing,
    "cifar10": cifar10,
    "cifar100": cifar100,
    "clinc150": clinc150,
    "credit-default": credit_default,
    "diabetes-readmission": diabetes_readmission,
    "digits": digits,
    "fashion-mnist": fashion_mnist,
    "kmnist": kmnist,
    "mnist": mnist,
    "motor-claims": motor_claims,
    "movielens-1m": movielens_1m,
    **{name: partial(multilabel, name) for name in SHAPES},
}
