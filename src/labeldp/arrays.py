"""Types of arrays, named once for the whole house.

>>> from labeldp.arrays import Floats
>>> Floats.__origin__.__name__
'ndarray'

A name says what an array holds; how many axes it has and what they count is said where it is used. `Codes` are classes
as numbers 0 .. K-1 in the smallest unsigned type that holds them; `Words` are 64 random or packed bits.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Bools: TypeAlias = npt.NDArray[np.bool_]
Codes: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]
Float32s: TypeAlias = npt.NDArray[np.float32]
Float64s: TypeAlias = npt.NDArray[np.float64]
Floats: TypeAlias = npt.NDArray[np.floating[Any]]
Int32s: TypeAlias = npt.NDArray[np.int32]
Int64s: TypeAlias = npt.NDArray[np.int64]
Ints: TypeAlias = npt.NDArray[np.integer[Any]]
Places: TypeAlias = npt.NDArray[np.intp]
UInt8s: TypeAlias = npt.NDArray[np.uint8]
UInt32s: TypeAlias = npt.NDArray[np.uint32]
Words: TypeAlias = npt.NDArray[np.uint64]
