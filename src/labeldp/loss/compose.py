"""Composition of losses: one after another on the same labels, or side by side on disjoint ones.

>>> from labeldp.loss.base import Pure
>>> both = sequence([(Pure(worst=0.5), 1), (Pure(worst=0.25), 2)])
>>> both.epsilon(0.0)
1.0
>>> both.epsilon(0.01) < 1.0
True

A composition keeps its parts, sorted, with counts: a loop, a count, a nested composition and one read back from disk
are the same value, compared by ==. Numbers are worked out when asked for, as the least of:

- the parts of finite epsilon added up, and the rest composed by itself;
- the Renyi curves added up;
- the losses convolved, when every part has a profile (`labeldp.loss.base.DiscreteLoss`);
- the same with discrete Gaussian noise replaced by the continuous Gaussian that dominates it.

Adaptive composition is covered by each of them.

Losses are read back from plain JSON, checked as strictly as if a user had typed them:

>>> read_loss({"kind": "zcdp", "rho": 0.5, "slack": 0.0})
ZCDP(rho=0.5, slack=0.0)

References: Kairouz, Oh & Viswanath 2015; Murtagh & Vadhan 2016 (unequal parts); Mironov 2017; Zhu, Dong & Wang 2022.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from labeldp.arrays import Float64s
from labeldp.errors import LabelDPError, invalid, nearest
from labeldp.loss.base import (
    HALF,
    BoundedRange,
    DiscreteLoss,
    Loss,
    Pure,
    convolve_pair,
    convolve_power,
    from_number,
    pair_from_profile,
    response_power,
    split_on_grid,
)
from labeldp.loss.curves import RDP, ZCDP, Gaussian, Profile, delta_from_rdp, epsilon_from_rdp, least_over_orders
from labeldp.loss.discrete import DiscreteGaussian
from labeldp.loss.rounding import TINY, UNIT, fraction_up, raise_up, root_up, settle, sum_up
from labeldp.validate import check_integer

Items = tuple[tuple[Loss, int], ...]

#: Losses larger than those of this tail's probability count as infinite when convolving.
TAIL = 1e-18
#: Binomial powers of more parts than this are taken on the grid instead.
MOST_ATOMS = 1_000_000
#: Discrete Gaussian parts, different ones and all of them, that are convolved exactly; of more only the dominating Gaussians
#: compose. Convolving takes some tens of milliseconds for each different part and each doubling of its count.
MOST_EXACT, MOST_COUNTED = 8, 64
#: No privacy at all.
NOTHING = Pure(worst=math.inf)


@dataclass(frozen=True, kw_only=True)
class Then(Loss):
    """Parts with counts, in sequence; made by `sequence`, which brings them into normal form.

    `epsilon` and `delta` take the best of several valid bounds ("routes"), listed in the module's text. Where the whole
    amounts to one loss (Gaussians merge: mu^2 adds; zCDP merges: rho adds), that loss answers.
    """

    items: Items

    @property
    def kind(self) -> str:
        return "composed"

    @property
    def slack(self) -> float:
        kept = math.fsum(count * math.log1p(-loss.slack) if loss.slack < 1 else -math.inf for loss, count in self.items)
        return min(1.0, raise_up(-math.expm1(kept)))

    @property
    def landmarks(self) -> tuple[float, ...]:
        return tuple(sorted({order for loss, _ in self.items for order in loss.landmarks}))

    def rdp(self, orders: Float64s) -> Float64s:
        total = sum((loss.rdp(orders) * count for loss, count in self.items), start=np.zeros_like(orders))
        return total * (1 + (len(self.items) + 4) * UNIT)

    def profile(self, epsilons: Float64s) -> Float64s | None:
        single = find_single_loss(self.items)
        if single is not None:
            return single.profile(epsilons)
        pair, smooth = convolve_parts(self.items), replace_discrete(self.items)
        if pair is None:
            return None if smooth is None else smooth.profile(epsilons)
        return np.array([pair.delta(float(epsilon)) for epsilon in epsilons])

    def epsilon(self, delta: float) -> float:
        single = find_single_loss(self.items)
        if single is not None:
            return single.epsilon(delta)
        finite, rest = split_finite(self.items)
        if not rest and delta == 0:
            return finite
        return settle(min(route(delta) for route in self._epsilon_routes(finite, rest)), self.delta, delta)

    def delta(self, epsilon: float) -> float:
        single = find_single_loss(self.items)
        if single is not None:
            return single.delta(epsilon)
        finite, rest = split_finite(self.items)
        return min(route(epsilon) for route in self._delta_routes(finite, rest))

    def _epsilon_routes(self, finite: float, rest: Items) -> list[Callable[[float], float]]:
        routes: list[Callable[[float], float]] = [
            lambda d: epsilon_from_rdp(self.rdp, d, slack=self.slack, landmarks=self.landmarks)
        ]
        if finite > 0 or not rest:
            routes.append(lambda d: math.nextafter(finite + sequence(rest).epsilon(d), math.inf))
        others = [route for route in (convolve_parts(self.items), replace_discrete(self.items)) if route is not None]
        return [*routes, *(route.epsilon for route in others)]

    def _delta_routes(self, finite: float, rest: Items) -> list[Callable[[float], float]]:
        routes: list[Callable[[float], float]] = [
            lambda e: delta_from_rdp(self.rdp, e, slack=self.slack, landmarks=self.landmarks)
        ]
        if finite > 0 or not rest:
            routes.append(lambda e: sequence(rest).delta(subtract_down(e, finite)) if e > finite else 1.0)
            routes.append(lambda e: 0.0 if e >= finite and not rest else 1.0)
        others = [route for route in (convolve_parts(self.items), replace_discrete(self.items)) if route is not None]
        return [*routes, *(route.delta for route in others)]

    def to_json(self) -> dict[str, Any]:
        return {"kind": "then", "of": [{"loss": loss.to_json(), "count": count} for loss, count in self.items]}


@dataclass(frozen=True, kw_only=True)
class Beside(Loss):
    """Alternatives, of which one changed label meets exactly one: every curve is the largest of theirs.

    A maximum of profiles is a profile (convex in e^epsilon), and a maximum of Renyi curves bounds each.
    """

    items: tuple[Loss, ...]

    @property
    def kind(self) -> str:
        return "in parallel"

    @property
    def slack(self) -> float:
        return max(loss.slack for loss in self.items)

    @property
    def landmarks(self) -> tuple[float, ...]:
        return tuple(sorted({order for loss in self.items for order in loss.landmarks}))

    def epsilon(self, delta: float) -> float:
        return max(loss.epsilon(delta) for loss in self.items)

    def delta(self, epsilon: float) -> float:
        return max(loss.delta(epsilon) for loss in self.items)

    def rdp(self, orders: Float64s) -> Float64s:
        curves: Float64s = np.max([loss.rdp(orders) for loss in self.items], axis=0)
        return curves

    def profile(self, epsilons: Float64s) -> Float64s | None:
        profiles = [found for loss in self.items if (found := loss.profile(epsilons)) is not None]
        return np.max(profiles, axis=0) if len(profiles) == len(self.items) else None

    def to_json(self) -> dict[str, Any]:
        return {"kind": "beside", "of": [loss.to_json() for loss in self.items]}


@dataclass(frozen=True, kw_only=True)
class Lump(Loss):
    """Many parts in sequence of which two sums are left: of their epsilons, and of their zCDP. Both exact rationals.

    Each part of finite epsilon is epsilon^2/2-zCDP, one of bounded range epsilon^2/8 (Bun & Steinke 2016; Cesar & Rogers
    2021), and both sums bound the composition, so the smaller answer holds. At delta = 0 nothing is lost: the epsilons
    add up as before. At delta > 0 it is the composition by zCDP, where the parts themselves could be convolved.
    """

    worst: Fraction
    rho: Fraction

    @property
    def kind(self) -> str:
        return "composed"

    @property
    def pure(self) -> Pure:
        """The sum of epsilons as a loss."""
        return Pure(worst=fraction_up(self.worst))

    @property
    def zcdp(self) -> ZCDP:
        """The sum of zCDP as a loss."""
        return ZCDP(rho=fraction_up(self.rho))

    def epsilon(self, delta: float) -> float:
        return min(self.pure.epsilon(delta), self.zcdp.epsilon(delta)) if delta else self.pure.epsilon(delta)

    def delta(self, epsilon: float) -> float:
        return min(self.pure.delta(epsilon), self.zcdp.delta(epsilon))

    def rdp(self, orders: Float64s) -> Float64s:
        return np.minimum(self.pure.rdp(orders), self.zcdp.rdp(orders))

    def to_json(self) -> dict[str, Any]:
        return {"kind": "lump", "epsilon": _fraction_text(self.worst), "rho": _fraction_text(self.rho)}


def compact(loss: Loss, *, most: int) -> Loss:
    """Return a loss that is no smaller, in fewer parts where there are more than `most` different ones.

    All parts of finite epsilon become one `Lump`; Gaussians, discrete ones with them, one Gaussian (mu^2 adds); zCDP one
    zCDP. So a sum of a million different promises is as short as one of `most`. Renyi curves, profiles without a finite
    epsilon and alternatives are kept as they are, however many.

    >>> whole = compact(sequence((Pure(worst=0.5 + i), 1) for i in range(9)), most=8)
    >>> whole.epsilon(0.0), type(whole).__name__
    (40.5, 'Lump')
    """
    if not isinstance(loss, Then) or len(loss.items) <= most:
        return loss
    worst, rho = Fraction(0), Fraction(0)
    rest: list[tuple[Loss, int]] = []
    for part, count in loss.items:
        if isinstance(part, Lump):
            worst, rho = worst + part.worst * count, rho + part.rho * count
        elif math.isfinite(bound := part.epsilon(0.0)):
            share = Fraction(1, 8) if isinstance(part, BoundedRange) else Fraction(1, 2)
            worst, rho = worst + Fraction(bound) * count, rho + share * Fraction(bound) ** 2 * count
        elif isinstance(part, DiscreteGaussian) and math.isfinite(part.gaussian.mu):
            rest.append((part.gaussian, count))
        else:
            rest.append((part, count))
    merged = gather_parts(tuple(rest)) if rest else ()
    return sequence([*merged, (Lump(worst=worst, rho=rho), 1)] if worst else merged)


def sequence(parts: Iterable[tuple[Loss, int]]) -> Loss:
    """Return the parts in sequence, in normal form: flat, equal parts counted, free parts dropped, sorted.

    `parts` are losses with counts. Because of the normal form, the order and the nesting in which a composition was
    built do not matter: equal promises are equal values.
    """
    counts: Counter[Loss] = Counter()
    for loss, count in parts:
        for atom, times in loss.items if isinstance(loss, Then) else ((loss, 1),):
            counts[atom] += times * count
    items = [(loss, count) for loss, count in counts.items() if count and not is_free(loss)]
    if not items:
        return Pure(worst=0.0)
    if len(items) == 1 and items[0][1] == 1:
        return items[0][0]
    return Then(items=tuple(sorted(items, key=lambda item: _order_key(item[0]))))


@lru_cache(maxsize=4096)
def _order_key(loss: Loss) -> str:
    """Return the loss's key, remembered: a ledger sorts the same parts at every step of a replay."""
    return loss.key


def parallel(parts: Iterable[Loss]) -> Loss:
    """Return the parts side by side, in normal form: flat, each once, the largest of each one-number family, sorted.

    For disjoint parts of the data: one changed label meets one of the losses, whichever is the worst.
    """
    flat = {atom for loss in parts for atom in (loss.items if isinstance(loss, Beside) else (loss,))}
    kept = {loss for loss in flat if not is_free(loss) and not any(dominates(other, loss) for other in flat)}
    if not kept:
        return Pure(worst=0.0)
    return kept.pop() if len(kept) == 1 else Beside(items=tuple(sorted(kept, key=lambda loss: loss.key)))


def is_free(loss: Loss) -> bool:
    """Whether the loss is none at all."""
    if isinstance(loss, DiscreteGaussian):
        return loss.square == 0
    return loss in (Pure(worst=0.0), BoundedRange(width=0.0), Gaussian(mu=0.0), ZCDP(rho=0.0))


def dominates(large: Loss, small: Loss) -> bool:
    """Whether two losses of one family compare, the first being strictly larger."""
    if isinstance(large, Pure) and isinstance(small, (Pure, BoundedRange)):
        bound = small.worst if isinstance(small, Pure) else small.width
        return large.worst > bound or (large.worst == bound and large != small)
    if isinstance(large, BoundedRange) and isinstance(small, BoundedRange):
        return large.width > small.width
    if isinstance(large, Gaussian) and isinstance(small, Gaussian):
        return large.mu > small.mu
    if isinstance(large, DiscreteGaussian) and isinstance(small, DiscreteGaussian):
        return large.variance == small.variance and large.square > small.square
    if isinstance(large, ZCDP) and isinstance(small, ZCDP):
        return large != small and large.rho >= small.rho and large.slack >= small.slack
    return False


def subtract_down(epsilon: float, finite: float) -> float:
    """Return what is left of epsilon, rounded down."""
    return epsilon if math.isinf(epsilon) else max(0.0, math.nextafter(epsilon - finite, -1.0))


def split_finite(items: Items) -> tuple[float, Items]:
    """Return the exact sum of the finite epsilons, rounded up, and the parts that have none."""
    worst = [(loss, count, loss.epsilon(0.0)) for loss, count in items]
    finite = sum_up((epsilon, count) for _, count, epsilon in worst if math.isfinite(epsilon))
    return finite, tuple((loss, count) for loss, count, epsilon in worst if math.isinf(epsilon))


def gather_parts(items: Items) -> Items:
    """Return the parts with all Gaussians as one (mu^2 adds) and all zCDP as one (rho adds)."""
    mus = [(loss.mu, count) for loss, count in items if isinstance(loss, Gaussian)]
    rhos = [(loss, count) for loss, count in items if isinstance(loss, ZCDP)]
    others = [(loss, count) for loss, count in items if not isinstance(loss, (Gaussian, ZCDP))]
    if rhos:
        slack = Then(items=tuple(rhos)).slack
        # A sum that reaches 1 promises nothing any more.
        merged = ZCDP(rho=sum_up((loss.rho, count) for loss, count in rhos), slack=slack) if slack < 1 else NOTHING
        others.insert(0, (merged, 1))
    if mus:
        others.insert(0, (Gaussian(mu=hypotenuse_up(mus)), 1))
    return tuple(others)


def replace_discrete(items: Items) -> Loss | None:
    """Return the sequence with each discrete Gaussian part as the Gaussian that dominates it; None if there is none."""
    worse = {loss: loss.gaussian for loss, _ in items if isinstance(loss, DiscreteGaussian)}
    if not worse or any(math.isinf(loss.mu) for loss in worse.values()):
        return None
    return sequence((worse[loss] if isinstance(loss, DiscreteGaussian) else loss, count) for loss, count in items)


def hypotenuse_up(mus: list[tuple[float, int]]) -> float:
    """Return the root of the sum of count * mu^2, rounded up."""
    if len(mus) == 1 and mus[0][1] == 1:
        return mus[0][0]
    return root_up(sum_up((math.nextafter(mu**2, math.inf), count) for mu, count in mus))


def find_single_loss(items: Items) -> Loss | None:
    """Return the one loss that the whole sequence amounts to, if it does."""
    merged = gather_parts(items)
    return merged[0][0] if len(merged) == 1 and merged[0][1] == 1 else None


@lru_cache(maxsize=64)
def convolve_parts(items: Items) -> DiscreteLoss | None:
    """Return the pair that dominates the whole sequence, or None where some part has no profile.

    Equal pure parts are a binomial, exactly. Otherwise all parts are put on one grid that reaches as far as the sum of
    losses is likely to (`likely_reach`), and convolved. Cached: epsilon and delta of one value ask again and again.
    """
    probe = np.array([0.0])
    discrete = [(loss, count) for loss, count in items if isinstance(loss, DiscreteGaussian)]
    if discrete and (
        len(discrete) > MOST_EXACT
        or sum(count for _, count in discrete) > MOST_COUNTED
        or all(loss.is_nearly_gaussian for loss, _ in discrete)
        or not all(loss.pairs for loss, _ in discrete)
    ):
        return None
    if any(isinstance(loss, (ZCDP, RDP)) or loss.profile(probe) is None for loss, _ in items):
        return None
    if any(math.isinf(loss.epsilon(0.5)) and loss.delta(1e3) >= 1 for loss, _ in items):
        return None
    parts = gather_parts(items)
    if len(parts) == 1 and isinstance(parts[0][0], Pure) and parts[0][1] <= MOST_ATOMS:
        return response_power(parts[0][0].worst, parts[0][1])
    step = likely_reach(parts) / HALF
    total: DiscreteLoss | None = None
    for loss, count in parts:
        part = discretise(loss, count, step=step)
        total = part if total is None else convolve_pair(total, part, step=step)
    return total


def likely_reach(items: Items) -> float:
    """Return a loss that the sequence exceeds with probability at most TAIL, infinite losses aside.

    Chernoff: Pr[Z > l] <= e^(-(a - 1)(l - D)) at every order a.
    """
    whole = Then(items=items)

    def bound(orders: Float64s) -> Float64s:
        return whole.rdp(orders) - math.log(TAIL) / (orders - 1.0)

    finite, rest = split_finite(items)
    likely = least_over_orders(bound, whole.landmarks)
    # Each discretised part may end one step above its largest loss: leave room, or that mass would count as infinite.
    pieces = sum(1 if isinstance(loss, Pure) else count for loss, count in items)
    room = HALF / (HALF - min(pieces + 1, HALF // 2))
    return max(TINY * 1e9, min(likely, math.inf if rest else finite)) * room


def discretise(loss: Loss, count: int, *, step: float) -> DiscreteLoss:
    """Return `count` of one loss on the grid."""
    if isinstance(loss, Pure) and count <= MOST_ATOMS:
        return split_on_grid(response_power(loss.worst, count), step=step)
    atoms = loss.atoms()
    if atoms is not None:
        return convolve_power(split_on_grid(atoms, step=step), count, step=step)

    def curve(epsilons: Float64s) -> Float64s:
        deltas = loss.profile(epsilons)
        assert deltas is not None  # `convolve_parts` asked before
        return deltas

    return convolve_power(pair_from_profile(curve, step=step), count, step=step)


OWNER = "Guarantee.from_json"


def read_loss(data: Any) -> Loss:
    """Return the loss that `to_json` wrote; anything else raises `LabelDPError`, since a promise is never guessed."""
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


def _read_sequence(data: dict[str, Any]) -> Loss:
    """Return a composition in sequence."""
    counted = [(read_loss(part["loss"]), check_integer(OWNER, "count", part["count"], least=1)) for part in data["of"]]
    return sequence(counted)


def _fraction_text(value: Fraction) -> str:
    return f"{value.numerator}/{value.denominator}"


def _read_fraction(text: Any) -> Fraction:
    """Return a rational >= 0; a sum of doubles and of their squares needs fewer than 2,000 digits."""
    if not isinstance(text, str) or not re.fullmatch(r"[0-9]{1,2000}/0*[1-9][0-9]{0,1999}", text):
        raise invalid(OWNER, "lump", "hold exact fractions", got=text)
    return Fraction(text)


def _read_numbers(values: Any) -> tuple[Any, ...]:
    """Return a list of JSON numbers, inf included."""
    return tuple(from_number(value) for value in values)


READERS: dict[str, Callable[[dict[str, Any]], Loss]] = {
    "pure": lambda data: Pure(worst=from_number(data["epsilon"])),
    "bounded_range": lambda data: BoundedRange(width=from_number(data["epsilon"])),
    "gaussian": lambda data: Gaussian(mu=from_number(data["mu"])),
    "discrete_gaussian": lambda data: DiscreteGaussian(variance=data["variance"], square=data["square"]),
    "zcdp": lambda data: ZCDP(rho=from_number(data["rho"]), slack=data["slack"]),
    "rdp": lambda data: RDP(
        orders=_read_numbers(data["orders"]), values=_read_numbers(data["values"]), slack=data["slack"]
    ),
    "profile": lambda data: Profile(epsilons=_read_numbers(data["epsilons"]), deltas=_read_numbers(data["deltas"])),
    "then": _read_sequence,
    "lump": lambda data: Lump(worst=_read_fraction(data["epsilon"]), rho=_read_fraction(data["rho"])),
    "beside": lambda data: parallel(read_loss(part) for part in data["of"]),
}
