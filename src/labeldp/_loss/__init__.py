"""Privacy losses: frozen values that answer epsilon(delta) and delta(epsilon) with the tightest bound they know.

>>> sequence([(Pure(worst=1.0), 2)]).epsilon(0.0)
2.0

Private: users meet them through `labeldp.Guarantee`.
"""

from labeldp._loss.base import Loss
from labeldp._loss.codec import read_loss
from labeldp._loss.compose import Beside, Then, parallel, sequence
from labeldp._loss.gaussian import Gaussian
from labeldp._loss.profile import Profile
from labeldp._loss.pure import BoundedRange, Pure
from labeldp._loss.renyi import RDP, ZCDP

__all__ = [
    "RDP",
    "ZCDP",
    "Beside",
    "BoundedRange",
    "Gaussian",
    "Loss",
    "Profile",
    "Pure",
    "Then",
    "parallel",
    "read_loss",
    "sequence",
]
