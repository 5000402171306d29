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

#: Odd, and as good as random: the product's upper bits depend on all bits of a number.
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


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
def find_ends(numbers: Any) -> Any:  # pragma: no cover - compiled
    """Return the least and the largest of whole numbers, of which there is one at least."""
    low, high = numbers[0], numbers[0]
    for number in numbers:
        low, high = min(low, number), max(high, number)
    return low, high


@compile_loop(nogil=True)
def count_buckets(
    numbers: Any, low: Any, mix: Any, mask: Any, shift: Any, sizes: Any
) -> None:  # pragma: no cover - compiled
    """Add to `sizes` how many numbers are in each bucket; see `fill_buckets`."""
    for row in range(len(numbers)):
        sizes[((np.uint64(numbers[row] - low) * mix) & mask) >> shift] += 1


@compile_loop(nogil=True)
def fill_buckets(
    numbers: Any, low: Any, mix: Any, mask: Any, shift: Any, bits: Any, places: Any, keys: Any
) -> None:  # pragma: no cover - compiled
    """Write number and row into one word each, bucket after bucket: the row in the lowest `bits`, above it the number's name.

    The name is (number - low) * mix modulo a power of two, `mask` + 1: mix is odd, so that it is another one for another number.
    Its bucket is name >> shift; `places` say where each bucket begins, and at the end where it ends. The numbers of one bucket are
    few enough that what is known of them stays in a core's cache, which is what makes it fast.
    """
    for row in range(len(numbers)):
        name = (np.uint64(numbers[row] - low) * mix) & mask
        place = places[name >> shift]
        keys[place] = (name << bits) | np.uint64(row)
        places[name >> shift] = place + 1


@compile_loop(nogil=True)
def mark_by_table(
    keys: Any, bits: Any, seed: Any, first: Any, words: Any, chosen: Any
) -> None:  # pragma: no cover - compiled
    """Mark the row of the largest public word of each person, as a bit of `chosen`, the least bit of a byte first.

    `keys` are those of `fill_buckets`; `words`, zeros, has an entry for every name.

    No word is zero here (the caller sees to it), and no two are equal, so the largest word names its row.
    """
    mask = (np.uint64(1) << bits) - np.uint64(1)
    for place in range(len(keys)):
        name = keys[place] >> bits
        words[name] = max(words[name], mix_word(row_state(seed, np.uint64(first) + (keys[place] & mask)), np.uint64(0)))
    for name in range(len(words)):
        if words[name]:
            row = find_place(seed, words[name]) - np.uint64(first)
            chosen[row >> np.uint64(3)] |= np.uint8(1) << np.uint8(row & np.uint64(7))


@compile_loop(nogil=True)
def mark_by_hash(
    keys: Any, bits: Any, ends: Any, seed: Any, first: Any, most: Any, chosen: Any
) -> Any:  # pragma: no cover - compiled
    """Mark the row of the largest public word of each person, bucket by bucket, and return whether that was done.

    `keys` are those of `fill_buckets`, and `ends` where each bucket ends. A bucket has a table of its own with more slots
    than keys, in which a name is looked for from the slot on that its product with an odd number says. Names that somebody
    chose so that they all meet in one slot would take for ever: after `most` slots for each key of a bucket the loop gives up, with nothing said of `chosen`.
    """
    mask = (np.uint64(1) << bits) - np.uint64(1)
    begin, size = 0, 1
    for end in ends:
        size, begin = max(size, end - begin), end
    table = np.zeros(4 * size, np.uint64)  # the key of the best row so far, plus one
    begin = 0
    for end in ends:
        wide = np.uint64(1)
        while (1 << np.int64(wide)) < (end - begin) + (end - begin) // 4:
            wide += np.uint64(1)
        slots = 1 << np.int64(wide)
        last = np.uint64(slots - 1)
        table[:slots] = 0
        tried, limit = 0, most * (end - begin)
        for place in range(begin, end):
            key = keys[place]
            slot = ((key >> bits) * _SPREAD) >> (np.uint64(64) - wide)
            while table[slot] and (table[slot] - np.uint64(1)) >> bits != key >> bits:
                slot, tried = (slot + np.uint64(1)) & last, tried + 1
            if tried > limit:
                return False
            # Which of two is larger nobody can foresee: chosen without a jump, which a processor would have to guess.
            held = table[slot]
            mine = mix_word(row_state(seed, np.uint64(first) + (key & mask)), np.uint64(0))
            best = mix_word(row_state(seed, np.uint64(first) + ((held - np.uint64(1)) & mask)), np.uint64(0))
            table[slot] = key + np.uint64(1) if (held == 0) | (mine > best) else held
        for spot in range(slots):
            if table[spot]:
                row = (table[spot] - np.uint64(1)) & mask
                chosen[row >> np.uint64(3)] |= np.uint8(1) << np.uint8(row & np.uint64(7))
        begin = end
    return True


@compile_loop(nogil=True)
def mark_by_sort(keys: Any, bits: Any, seed: Any, first: Any, chosen: Any) -> None:  # pragma: no cover - compiled
    """Mark the row of the largest public word of each person; `keys` are those of `fill_buckets`, sorted."""
    mask = (np.uint64(1) << bits) - np.uint64(1)
    best_row, best = np.uint64(0), np.uint64(0)
    for place in range(len(keys)):
        row = keys[place] & mask
        word = mix_word(row_state(seed, np.uint64(first) + row), np.uint64(0))
        if place and keys[place] >> bits != keys[place - 1] >> bits:
            chosen[best_row >> np.uint64(3)] |= np.uint8(1) << np.uint8(best_row & np.uint64(7))
            best_row, best = row, word
        elif place == 0 or word > best:
            best_row, best = row, word
    if len(keys):
        chosen[best_row >> np.uint64(3)] |= np.uint8(1) << np.uint8(best_row & np.uint64(7))
