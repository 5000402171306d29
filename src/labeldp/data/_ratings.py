"""Who rated which film how: MovieLens 1M, read from the files as GroupLens gives them out.

>>> from labeldp.data._ratings import movielens_1m
>>> movielens_1m(directory="no/such/folder")
Traceback (most recent call last):
...
labeldp.errors.LabelDPError: load: `directory` must hold movielens-1m/ratings.dat, got no such file. ...

References: Harper and Konstan, "The MovieLens datasets: history and context", ACM TiiS 5(4), 2015.

Design notes. GroupLens allows research and no redistribution: it is never bundled. A rating is one row; who and which
film are `identifiers`, the features of both are columns. A fifth of the rows, by hash of the position, is the test
part, so that the users and films of the test part are known in training, as recommenders assume.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pa_csv

from labeldp.data._dataset import Dataset
from labeldp.data._files import expect, find, reading
from labeldp.data._split import held_out

Directory = str | os.PathLike[str] | None

FILES = ("ratings.dat", "users.dat", "movies.dat")
GENRES = (
    "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary", "Drama", "Fantasy",
    "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western",
)  # fmt: skip


def movielens_1m(directory: Directory = None) -> Dataset:
    """Load 1,000,209 ratings from 1 to 5 by 6,040 people."""
    ratings_path, users_path, movies_path = find("movielens-1m", FILES, directory=directory)
    user, movie, rating, timestamp = _columns(ratings_path, rows=1_000_209, columns=4)
    columns: dict[str, Any] = {"user_id": user, "movie_id": movie, "timestamp": timestamp}
    columns |= _people(users_path, user) | _genres(movies_path, movie)
    X, y = pa.table(columns), rating.astype(np.int64) - 1
    test = held_out(np.arange(len(y)), share=0.2)
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


def _columns(path: Path, *, rows: int, columns: int) -> list[npt.NDArray[Any]]:
    """Read a file whose fields stand between double colons: between single ones, with empty columns to skip."""
    names = [f"{kind}{i}" for i in range(columns) for kind in ("field", "gap")][:-1]
    with reading(path, f"a file of {columns} fields between double colons"):
        table = pa_csv.read_csv(
            path,
            read_options=pa_csv.ReadOptions(column_names=names, encoding="latin-1"),
            parse_options=pa_csv.ParseOptions(delimiter=":", quote_char=False),
            convert_options=pa_csv.ConvertOptions(include_columns=names[::2]),
        )
    expect(path, "rows", want=rows, got=table.num_rows)
    return [column.to_numpy() for column in table.columns]


def _people(path: Path, user: npt.NDArray[Any]) -> dict[str, Any]:
    """Gender, age group and occupation of the user of each rating; users are numbered from 1, without gaps."""
    number, gender, age, occupation, _zip = _columns(path, rows=6_040, columns=5)
    expect(path, "user numbers", want=[1, 6_040], got=[int(number[0]), int(number[-1])])
    row = user - 1
    return {"gender": pa.array(gender[row].astype(str)), "age": age[row], "occupation": occupation[row]}


def _genres(path: Path, movie: npt.NDArray[Any]) -> dict[str, Any]:
    """A column of zeros and ones per genre. Film numbers have gaps and titles have colons, hence the loop."""
    with reading(path, "a file of number::title::genres"):
        lines = [line.split("::") for line in path.read_text(encoding="latin-1").splitlines()]
        expect(path, "rows", want=3_883, got=len(lines))
        table = np.zeros((max(int(line[0]) for line in lines) + 1, len(GENRES)), np.uint8)
        for number, _title, genres in lines:
            for genre in genres.split("|"):
                table[int(number), GENRES.index(genre)] = 1
        of_rating = table[movie]
    return {f"genre_{name}": of_rating[:, i] for i, name in enumerate(GENRES)}
