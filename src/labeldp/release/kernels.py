"""Compiled loops of the door: which rows are one person's, and which of them is asked.

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

from labeldp.channel.kernels import find_place, mix_word, row_state
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


@compile_loop(nogil=True)
def number_by_table(numbers: Any, low: Any, table: Any, codes: Any, found: Any) -> Any:  # pragma: no cover - compiled
    """Write the code of each number, in order of first occurrence, and the different ones; return how many there are.

    `table` has an entry, -1, for every number from `low` on.
    """
    count = 0
    for row in range(len(numbers)):
        at = numbers[row] - low
        code = table[at]
        if code < 0:
            code = count
            table[at], found[count] = code, numbers[row]
            count += 1
        codes[row] = code
    return count


@compile_loop(nogil=True)
def mark_by_table(
    numbers: Any, low: Any, seed: Any, first: Any, words: Any, chosen: Any
) -> None:  # pragma: no cover - compiled
    """Mark the row of the largest public word of each person. `words`, zeros, has an entry for every number from `low` on.

    No word is zero here (the caller sees to it), and no two are equal, so the largest word names its row.
    """
    for row in range(len(numbers)):
        at = numbers[row] - low
        words[at] = max(words[at], mix_word(row_state(seed, first + row), np.uint64(0)))
    for at in range(len(words)):
        if words[at]:
            chosen[find_place(seed, words[at]) - np.uint64(first)] = True


@compile_loop(nogil=True)
def pack_rows(numbers: Any, low: Any, bits: Any, keys: Any) -> None:  # pragma: no cover - compiled
    """Write number and row into one word each: the row in the lowest `bits`, the number less `low` above."""
    for row in range(len(numbers)):
        keys[row] = (np.uint64(numbers[row] - low) << bits) | np.uint64(row)


@compile_loop(nogil=True)
def mark_by_sort(keys: Any, bits: Any, seed: Any, first: Any, chosen: Any) -> None:  # pragma: no cover - compiled
    """Mark the row of the largest public word of each person; `keys` are those of `pack_rows`, sorted."""
    mask = (np.uint64(1) << bits) - np.uint64(1)
    best_row, best = np.uint64(0), np.uint64(0)
    for place in range(len(keys)):
        row = keys[place] & mask
        word = mix_word(row_state(seed, np.uint64(first) + row), np.uint64(0))
        if place and keys[place] >> bits != keys[place - 1] >> bits:
            chosen[best_row] = True
            best_row, best = row, word
        elif place == 0 or word > best:
            best_row, best = row, word
    if len(keys):
        chosen[best_row] = True
