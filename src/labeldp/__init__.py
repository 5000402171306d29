"""labeldp: release labels under label differential privacy, and learn from what was released.

>>> import labeldp
>>> "privatize" in dir(labeldp)
True

Design notes. The front door is lazy (PEP 562): `import labeldp` loads nothing but this file, and a name is fetched
from its room when it is first asked for. `_ROOM_OF` says which room; the imports under `TYPE_CHECKING` say the same
to type checkers and editors, and tests/test_house.py holds the two together. Inside the package, import from the
room, never through this door.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from labeldp.accounting import Ledger
    from labeldp.channel import CandidateChannel, Channel, MatrixChannel
    from labeldp.errors import BudgetError, LabelDPError, PrivacyError, ReleaseError
    from labeldp.guarantee import Guarantee, Trust, Unit
    from labeldp.learn import LabelPrivateClassifier, LabelPrivateRegressor
    from labeldp.mechanisms import (
        ClusterRR,
        InformativeResponse,
        OptimalResponse,
        PeerToPeerRR,
        RandomizedResponse,
        RRTopK,
        RRWithPrior,
        UnbiasedResponse,
    )
    from labeldp.priors import ClusterPrior, ModelPrior, PublicPrior, UniformPrior
    from labeldp.release import (
        LabelCounts,
        LabelSums,
        Measurement,
        Persons,
        Release,
        SensitiveLabels,
        load_release,
        measure,
        privatize,
    )

__version__ = "0.1.0"

__all__ = [
    "BudgetError",
    "CandidateChannel",
    "Channel",
    "ClusterPrior",
    "ClusterRR",
    "Guarantee",
    "InformativeResponse",
    "LabelCounts",
    "LabelDPError",
    "LabelPrivateClassifier",
    "LabelPrivateRegressor",
    "LabelSums",
    "Ledger",
    "MatrixChannel",
    "Measurement",
    "ModelPrior",
    "OptimalResponse",
    "PeerToPeerRR",
    "Persons",
    "PrivacyError",
    "PublicPrior",
    "RRTopK",
    "RRWithPrior",
    "RandomizedResponse",
    "Release",
    "ReleaseError",
    "SensitiveLabels",
    "Trust",
    "UnbiasedResponse",
    "UniformPrior",
    "Unit",
    "load_release",
    "measure",
    "privatize",
]

_ROOM_OF = {
    "BudgetError": "errors",
    "CandidateChannel": "channel",
    "Channel": "channel",
    "ClusterPrior": "priors",
    "ClusterRR": "mechanisms",
    "Guarantee": "guarantee",
    "InformativeResponse": "mechanisms",
    "LabelCounts": "release",
    "LabelDPError": "errors",
    "LabelPrivateClassifier": "learn",
    "LabelPrivateRegressor": "learn",
    "LabelSums": "release",
    "Ledger": "accounting",
    "MatrixChannel": "channel",
    "Measurement": "release",
    "ModelPrior": "priors",
    "OptimalResponse": "mechanisms",
    "PeerToPeerRR": "mechanisms",
    "Persons": "release",
    "PrivacyError": "errors",
    "PublicPrior": "priors",
    "RRTopK": "mechanisms",
    "RRWithPrior": "mechanisms",
    "RandomizedResponse": "mechanisms",
    "Release": "release",
    "ReleaseError": "errors",
    "SensitiveLabels": "release",
    "Trust": "guarantee",
    "UnbiasedResponse": "mechanisms",
    "UniformPrior": "priors",
    "Unit": "guarantee",
    "load_release": "release",
    "measure": "release",
    "privatize": "release",
}


def __getattr__(name: str) -> object:
    """Fetch a public name from its room, or a room (``labeldp.testing``), the first time it is asked for."""
    if name in _ROOM_OF:
        value: object = getattr(import_module(f"{__name__}.{_ROOM_OF[name]}"), name)
        globals()[name] = value  # the next access does not come here
        return value
    if not name.startswith("_") and find_spec(f"{__name__}.{name}") is not None:
        return import_module(f"{__name__}.{name}")
    from labeldp.errors import nearest

    # AttributeError, not a LabelDPError: hasattr and `from labeldp import name` rely on it.
    raise AttributeError(f"labeldp has no `{name}`. {nearest(name, __all__)}")


def __dir__() -> list[str]:
    """The public names and the rooms, loaded or not."""
    rooms = {module.name for module in iter_modules(__path__) if not module.name.startswith("_")}
    return sorted({*__all__, *rooms, "__version__", "__doc__"})
