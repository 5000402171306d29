"""`TextFeatures`: sentences as rows of numbers, without labels, in seconds on a CPU.

>>> texts = [
...     "what is my balance",
...     "show my balance",
...     "book a flight",
...     "book me a flight to rome",
...     "what is the balance",
... ]
>>> rows = TextFeatures(n_components=2, min_count=1).fit_transform(texts)
>>> rows.shape, bool((rows[0] @ rows[1] > 1.8) and (rows[0] @ rows[2] < 1.0))  # of at most 2
((5, 2), True)

Words and pairs of words, and pieces of two to five letters within words, are counted and weighed by TF-IDF (scikit-learn's
`TfidfVectorizer`); a truncated SVD of both side by side (`TruncatedSVD`) leaves d numbers, a few hundred; rows are brought to
norm sqrt(d). Pieces of words carry over misspellings and endings. It is a pipeline of scikit-learn under one name, with settings that
suit short texts: whoever has a better encoder, a sentence transformer for instance, uses that in its place.

References: Deerwester et al. 1990 (latent semantic analysis); Salton and Buckley 1988 (TF-IDF).

Design notes. Labels are never asked for, so under label privacy the features cost nothing. The vocabulary and the SVD are learned
from the texts of all rows, which are public here: a model that is saved holds words of them. A norm of sqrt(d) is that of d
standardised columns. With rows of norm one the forward loss of `SoftmaxRegression` first moves its intercepts, which is the wrong
way down when classes are many, and ends in a far worse place: the loss is not convex.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import FeatureUnion
from sklearn.utils.validation import check_is_fitted

from labeldp.arrays import Array, Float32s
from labeldp.errors import Described, invalid
from labeldp.features.transforms import scale_rows
from labeldp.validate import check_integer

OWNER = "TextFeatures"
#: Words in a row, and letters in a row, that are counted.
WORDS, LETTERS = (1, 2), (2, 5)


class TextFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]  # untyped
    """Short texts as rows of norm sqrt(d), float32 (n, d), d = `n_components`.

    Parameters
    ----------
    n_components : int
        Numbers that a text becomes. Fewer, if the texts have fewer words and pieces of words.
    min_count : int
        Words and pieces that fewer texts have are not counted.
    random_state : int
        Of the randomized SVD. Not a privacy matter.

    Notes
    -----
    X is a list or column of texts, or a table with one column. A missing text is an empty one.

    *Edge cases.*
    A text without a known word or piece is a row of zeros. Texts without any word that occurs `min_count` times are refused,
    and so is anything that is no text; messages name the row and never show it.
    """

    def __init__(self, n_components: int = 256, *, min_count: int = 2, random_state: int = 0) -> None:
        self.n_components = n_components
        self.min_count = min_count
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> TextFeatures:
        """Learn words and directions from texts alone."""
        self.fit_transform(X)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> Float32s:
        """Learn words and directions from texts alone, and return the rows of these texts."""
        texts = read_texts(X)
        size = check_integer(OWNER, "n_components", self.n_components, least=1)
        least = check_integer(OWNER, "min_count", self.min_count, least=1)
        common = {"min_df": least, "sublinear_tf": True, "dtype": np.float32}
        words = TfidfVectorizer(ngram_range=WORDS, **common)
        letters = TfidfVectorizer(analyzer="char_wb", ngram_range=LETTERS, **common)
        counts = FeatureUnion([("words", words), ("letters", letters)])
        try:
            weighed = counts.fit_transform(texts)
        except ValueError:  # scikit-learn's "empty vocabulary" and "no terms remain"
            got = Described(f"{len(texts)} texts without one")
            fix = "Lower min_count, or look at the column."
            raise invalid(OWNER, "X", f"have words that {least} texts share", got=got, fix=fix) from None
        directions = TruncatedSVD(min(size, *weighed.shape), random_state=self.random_state)
        rows = directions.fit_transform(weighed)
        self.counts_, self.directions_ = counts, directions
        self._n_features_out = rows.shape[1]
        return scale_texts(rows)

    def transform(self, X: Any) -> Float32s:
        """Return the rows of texts, seen before or not."""
        check_is_fitted(self, "directions_")
        return scale_texts(self.directions_.transform(self.counts_.transform(read_texts(X))))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        return tags


def read_texts(X: Any) -> list[str]:
    """Return texts as a list: of a list, a column, or a table with one column; a missing one is empty."""
    if isinstance(X, str):
        raise invalid(OWNER, "X", "be a column of texts", got=Described("one text"), fix="Put it into a list.")
    if isinstance(X, pa.Table):
        if X.num_columns != 1:
            got = Described(f"a table with {X.num_columns} columns")
            raise invalid(OWNER, "X", "have one column", got=got, fix="Select the column of texts.")
        values = X.column(0).to_pylist()
    else:
        array: Array = np.asarray(X, dtype=object)
        if array.ndim == 2 and array.shape[1] == 1:
            array = array[:, 0]
        if array.ndim != 1:
            got = Described(f"an array of shape {array.shape}")
            raise invalid(OWNER, "X", "be a column of texts", got=got, fix="Select the column of texts.")
        values = array.tolist()
    texts = ["" if value is None or (isinstance(value, float) and math.isnan(value)) else value for value in values]
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            got = Described(f"a {type(text).__name__} in row {row}")
            raise invalid(OWNER, "X", "hold texts", got=got)
    if not texts:
        raise invalid(OWNER, "X", "have a text", got=Described("none"))
    return texts


def scale_texts(rows: Any) -> Float32s:
    """Return rows of norm sqrt(d), in float32; rows of zeros stay."""
    found: Float32s = scale_rows(np.asarray(rows, np.float32)) * np.float32(math.sqrt(rows.shape[1]))
    return found
