"""The door: raw labels go in, and only noise-protected values come out.

`privatize` releases labels; `measure` releases a statistic of labels for those who trust a curator. Nothing else in
labeldp touches a raw label, and both charge the same ledger.

>>> from labeldp.release import SensitiveLabels
>>> SensitiveLabels([0, 1, 1], n_classes=2)
<SensitiveLabels 'labels': 3 labels of 2 classes, contents hidden>
"""

from typing import TYPE_CHECKING

from labeldp.release.dataset import ReleasedItems
from labeldp.release.door import privatize
from labeldp.release.labels import SensitiveLabels
from labeldp.release.measurement import Measurement, measure
from labeldp.release.persons import Persons
from labeldp.release.queries import LabelCounts, LabelSums, Query, Sensitivity
from labeldp.release.release import Release

if TYPE_CHECKING:  # a type checker does not see __getattr__ through: without this, load_release is just an object
    from labeldp.release.loading import load_release

__all__ = [
    "LabelCounts",
    "LabelSums",
    "Measurement",
    "Persons",
    "Query",
    "Release",
    "ReleasedItems",
    "SensitiveLabels",
    "Sensitivity",
    "load_release",
    "measure",
    "privatize",
]


def __getattr__(name: str) -> object:
    """Load the part that needs pyarrow only when a release is read."""
    if name == "load_release":
        from labeldp.release.loading import load_release

        return load_release
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
