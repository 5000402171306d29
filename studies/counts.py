"""Counts by people for the studies of private selection: films, diagnoses, tags, words, labels of pictures.

>>> users, films = np.array([1, 1, 2, 3]), np.array([7, 7, 7, 9])
>>> int(count_films(users, films, 2).counts[6])  # two people, not three ratings
2

A person counts once for an item. Rows of the multi-label sets and questions of CLINC150 stand for people. The lists of
items are taken as public: those of MovieLens are numbers, the others are what occurs at all.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from labeldp.arrays import Int64s
from labeldp.data import load
from labeldp.selection import Histogram

#: The README of MovieLens 1M: "MovieIDs range between 1 and 3952".
LAST_FILM = 3_952


def read_film_pairs(directory: Any) -> tuple[Int64s, Int64s]:
    """Return who rated which film, of all ratings: nobody learns anything here, so that there is no test part."""
    data = load("movielens-1m", directory=directory)
    users, films = (
        np.concatenate([part[name].to_numpy() for part in (data.X_train, data.X_test)]).astype(np.int64)
        for name in ("user_id", "movie_id")
    )
    return users, films


def count_films(users: Int64s, films: Int64s, most: int) -> Histogram:
    """Return how many of the users numbered 1 to `most` rated each film."""
    kept = users <= most
    named = Histogram.from_pairs(users[kept], films[kept], candidates=range(1, LAST_FILM + 1))
    return Histogram.of(named.counts)


def count_diagnoses(directory: Any) -> tuple[Histogram, int]:
    """Return how many patients ever had each code among the three diagnoses of a stay."""
    data = load("diabetes-readmission", directory=directory)
    parts = [part for part in (data.X_train, data.X_test) for _ in range(3)]
    names = ("diag_1", "diag_2", "diag_3") * 2
    users = np.concatenate([part["patient_nbr"].to_numpy() for part in parts]).astype(np.int64)
    codes = np.concatenate([part[name].to_numpy(zero_copy_only=False) for part, name in zip(parts, names, strict=True)])
    _, items = np.unique(codes.astype(str), return_inverse=True)
    return count_pairs(users, items)


def count_words(directory: Any) -> tuple[Histogram, int]:
    """Return how many questions have each word; a question counts as a person."""
    data = load("clinc150", directory=directory)
    texts = [text for part in (data.X_train, data.X_test) for text in part["text"].to_pylist()]
    words = [(i, word) for i, text in enumerate(texts) for word in text.lower().split()]
    _, items = np.unique(np.array([word for _, word in words]), return_inverse=True)
    return count_pairs(np.array([i for i, _ in words]), items)


def count_pairs(users: Int64s, items: Int64s) -> tuple[Histogram, int]:
    """Return how many users have each item, and how many users there are."""
    named = Histogram.from_pairs(users, items, candidates=range(int(items.max()) + 1))
    return Histogram.of(named.counts), np.unique(users).size


def count_labels(name: str, directory: Any) -> tuple[Histogram, int]:
    """Return how many rows of a multi-label set have each label; a row counts as a person."""
    data = load(name, directory=directory)
    labels = np.concatenate([data.y_train, data.y_test])
    return Histogram.of(labels.sum(axis=0, dtype=np.int64)), len(labels)


#: Table 1's settings on other counts: the table, how it is read, and what a person and an item are.
COUNTS: dict[str, tuple[Callable[[Any], tuple[Histogram, int]], str]] = {
    "diagnoses, Table 1": (count_diagnoses, "patients and codes of diabetes-readmission"),
    "tags, Table 1": (partial(count_labels, "delicious"), "web pages and tags of delicious"),
    "words, Table 1": (count_words, "questions and words of CLINC150"),
    "pictures, Table 1": (partial(count_labels, "corel5k"), "pictures and labels of corel5k"),
}
