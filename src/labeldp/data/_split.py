"""A train/test split that depends on positions or identities alone, and is the same in every version of everything.

>>> held_out(np.arange(10), share=0.3).astype(int).tolist()
[0, 0, 0, 1, 0, 0, 0, 0, 0, 0]

Design notes. Random generators may change their streams between releases; this hash may not. A row is in the test
part when the hash of its key, a whole number, falls below share * 2**64, so all rows of one person, given the
person's number as key, land on one side. SplitMix64's finaliser: Steele, Lea and Flood, "Fast splittable
pseudorandom number generators", OOPSLA 2014.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def held_out(keys: npt.NDArray[Any], *, share: float) -> npt.NDArray[np.bool_]:
    """Return which rows are test rows: about `share` of the distinct keys."""
    word = keys.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    word ^= word >> np.uint64(31)
    return word < np.uint64(int(share * 2**64))
