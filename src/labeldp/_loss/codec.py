"""Losses from plain JSON, checked as strictly as if a user had typed them.

>>> read_loss({"kind": "zcdp", "rho": 0.5, "slack": 0.0})
ZCDP(rho=0.5, slack=0.0)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from labeldp._loss.base import Loss, from_number
from labeldp._loss.compose import parallel, sequence
from labeldp._loss.gaussian import Gaussian
from labeldp._loss.profile import Profile
from labeldp._loss.pure import BoundedRange, Pure
from labeldp._loss.renyi import RDP, ZCDP
from labeldp._validate import check_integer
from labeldp.errors import LabelDPError, invalid, nearest

OWNER = "Guarantee.from_json"


def read_loss(data: Any) -> Loss:
    """Return the loss that `to_json` wrote."""
    if not isinstance(data, dict):
        raise invalid(OWNER, "loss", "be an object with a `kind`", got=data)
    kind = data.get("kind")
    if kind not in READERS:
        raise invalid(OWNER, "kind", "name a privacy loss", got=kind, fix=nearest(str(kind), READERS))
    try:
        return READERS[kind](data)
    except LabelDPError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise invalid(OWNER, "loss", f"have the fields of a {kind} loss", got=data) from error


def read_sequence(data: dict[str, Any]) -> Loss:
    """Return a composition in sequence."""
    counted = [(read_loss(part["loss"]), check_integer(OWNER, "count", part["count"], least=1)) for part in data["of"]]
    return sequence(counted)


def numbers(values: Any) -> tuple[Any, ...]:
    """Return a list of JSON numbers, inf included."""
    return tuple(from_number(value) for value in values)


READERS: dict[str, Callable[[dict[str, Any]], Loss]] = {
    "pure": lambda data: Pure(worst=from_number(data["epsilon"])),
    "bounded_range": lambda data: BoundedRange(width=from_number(data["epsilon"])),
    "gaussian": lambda data: Gaussian(mu=from_number(data["mu"])),
    "zcdp": lambda data: ZCDP(rho=from_number(data["rho"]), slack=data["slack"]),
    "rdp": lambda data: RDP(orders=numbers(data["orders"]), values=numbers(data["values"]), slack=data["slack"]),
    "profile": lambda data: Profile(epsilons=numbers(data["epsilons"]), deltas=numbers(data["deltas"])),
    "then": read_sequence,
    "beside": lambda data: parallel(read_loss(part) for part in data["of"]),
}
