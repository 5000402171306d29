"""Compiled loops of the door: which row of each person is asked.

>>> import numpy as np
>>> best = np.full(2, -1, np.int64)
>>> find_first_rows(
...     np.array([0, 1, 0]), np.array([0.0, 0.0, 5.0]), np.uint64(0), 0, best, np.zeros(2), np.zeros(2, np.uint64)
... )
>>> best.tolist()
[2, 1]

Public chance is that of `labeldp.channel.kernels`: a word that is a function of a public seed and of a row's position.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from labeldp.channel.kernels import mix_word, row_state
from labeldp.kernels import compile_loop


@compile_loop(nogil=True)
def find_first_rows(
    codes: Any, scores: Any, seed: Any, first: Any, best: Any, best_scores: Any, best_words: Any
) -> None:  # pragma: no cover - compiled
    """Write into `best` each person's row of the largest score; of equal ones that of the largest public word.

    `codes` are the persons of rows at positions `first` on; `best` is -1 where a person has no row yet. Without scores
    (an empty array) chance alone decides.
    """
    plain = len(scores) == 0
    for row in range(len(codes)):
        person = codes[row]
        score = 0.0 if plain else scores[row]
        word = mix_word(row_state(seed, first + row), np.uint64(0))
        if (
            best[person] < 0
            or score > best_scores[person]
            or (score == best_scores[person] and word > best_words[person])
        ):
            best[person], best_scores[person], best_words[person] = first + row, score, word


@compile_loop(nogil=True)
def make_words(seed: Any, places: Any, out: Any) -> None:  # pragma: no cover - compiled
    """Write the public word of each position."""
    for row in range(len(places)):
        out[row] = mix_word(row_state(seed, places[row]), np.uint64(0))
