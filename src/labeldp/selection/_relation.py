"""The two neighbouring relations of counts by users, and how far one user can move what is selected.

>>> read_neighbours("demo", "replace").reach
2

Statement. One user adds at most 1 to each count, and may add to any number of them. Let h be the counts, sorted
h_(1) >= h_(2) >= ..., and q_j = h_(j) - h_(j+1) the j-th gap. Between neighbours

- add_remove: every count, hence every sorted count, changes by 0 or 1, all in one direction. So counts differ in range
  (largest change less smallest) by at most 1, and a gap, the difference of two sorted counts, by at most 1.
- replace: one user removed, then one added. So counts differ in range by at most 2, a gap by at most 2.

`reach` is this number g. The changes of all gaps lie in [-g, g]: their range is 2 g. If q_j > g, the j leading items
are the same for every neighbour: under add_remove an item inside falls by 1 or one outside rises by 1, not both; under
replace both may happen, and the distance shrinks by at most 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from labeldp._validate import check_choice
from labeldp.guarantee import Trust, Unit

#: What every guarantee of this package stands on.
ONE_EACH = "one user adds at most 1 to each count"
#: What a guarantee with Gumbel noise stands on as well; its uniforms have 128 bits, its logarithms 53.
FLOATING_POINT = "the selection's Gumbel noise is continuous, drawn in 64-bit floating point"


@dataclass(frozen=True, kw_only=True)
class Relation:
    """A neighbouring relation: its name, the reach g of one change, and the unit its guarantee states."""

    name: str
    reach: int
    unit: Unit

    def terms(self, *assumptions: str) -> dict[str, Any]:
        """Return the arguments that every guarantee here shares."""
        return {"unit": self.unit, "trust": Trust.CURATOR, "assumptions": (ONE_EACH, *assumptions)}


RELATIONS = {
    "add_remove": Relation(name="add_remove", reach=1, unit=Unit.RECORD_ADD_REMOVE),
    "replace": Relation(name="replace", reach=2, unit=Unit.RECORD_REPLACE),
}


def read_neighbours(owner: str, neighbours: Any) -> Relation:
    """Return the relation of this name."""
    known = tuple(RELATIONS)
    return RELATIONS[check_choice(owner, "neighbours", neighbours if isinstance(neighbours, str) else None, known)]
