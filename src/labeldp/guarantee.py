"""What is promised, about what, and whom the owner of a label must trust for it.

>>> promise = Guarantee.pure(1.0, assumptions=did_not_see("prior"))
>>> print(promise)
epsilon = 1 at delta = 0 (pure), one label replaced; trusts no one
  whoever holds the raw labels has seen them: the promise is about what was released
  assumes: the prior did not see these labels
>>> histogram = Guarantee.gaussian(sigma=10.0, sensitivity=1.5, trust=Trust.CURATOR).named("histogram")
>>> histogram.then(promise.named("response")).headline
'epsilon = 1.51788 at delta = 1e-05 (composed), one label replaced; trusts a curator'

(epsilon, delta)-DP: for every event and every two neighbouring data sets, Pr[event] <= e^epsilon Pr'[event] + delta.
The `unit` says which data sets are neighbours. What that means to someone who guesses a label is `advantage_bound`, how
much better than chance she can be, and `best_guess`, how often she can be right:

>>> round(advantage_bound(1.0), 6), advantage_bound(math.inf), round(best_guess(1.0), 3)
(0.462117, 1.0, 0.731)

References: Dwork & Roth 2014; Bun & Steinke 2016; Mironov 2017; Balle & Wang 2018; Zhu, Dong & Wang 2022.

Design notes. A `Guarantee` is a plain value. Two are equal when they promise the same: loss, unit, trust and
assumptions; the name and the parts are for display. Compositions keep their parts (see `labeldp.loss.compose`), so a
loop, a count and a ledger replayed from disk give equal guarantees and the same numbers. Numbers round up, in text too.

What a promise stands on is part of it: `assumptions` compose, are saved and are printed with it. That noise came from a
seed is one of them (`SEEDED`), and so is that what was handed in beside the labels did not see them (`did_not_see`).
`str` gives all of it, on a line each; `headline` is the first line, for tables and for a repr.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Context, Decimal
from enum import Enum, Flag
from fractions import Fraction
from typing import Any

from labeldp.display import NOT_PRIVATE, card, percent
from labeldp.errors import BudgetError, Described, PrivacyError, invalid, nearest
from labeldp.loss import (
    RDP,
    ZCDP,
    BoundedRange,
    DiscreteGaussian,
    Gaussian,
    Loss,
    Profile,
    Pure,
    group_loss,
    parallel,
    read_loss,
    sequence,
)
from labeldp.loss.rounding import quotient_up
from labeldp.validate import check_delta, check_epsilon, check_integer, check_positive

#: The delta at which a guarantee without a pure epsilon is shown.
SHOWN_DELTA = 1e-5
#: What a promise stands on whose noise can be made again.
SEEDED = "no one knows or can guess the seed from which the noise was made; the release is not private otherwise"
#: What a promise about labels stands on when it is read as one about persons.
MOST_ROWS = "no person has more than {rows} of these labels"


def did_not_see(*things: str) -> tuple[str, ...]:
    """Return what is assumed of each thing that its user handed in beside the labels: a prior, a grouping, features.

    A prior that was made from the labels themselves gives them away whatever the noise, and no code can tell. So it is
    said wherever one is handed in.

    >>> did_not_see("prior", "grouping")
    ('the prior did not see these labels', 'the grouping did not see these labels')
    """
    return tuple(f"the {thing} did not see these labels" for thing in things)


class Unit(str, Enum):
    """Which change of the data the guarantee hides: the neighbouring relation, always symmetric."""

    LABEL = "label"
    PERSON = "person"
    RECORD_ADD_REMOVE = "record_add_remove"
    RECORD_REPLACE = "record_replace"

    @property
    def sentence(self) -> str:
        """The change in words."""
        return _UNIT_SENTENCES[self]


_UNIT_SENTENCES = {
    Unit.LABEL: "one label replaced",
    Unit.PERSON: "all labels of one person replaced",
    Unit.RECORD_ADD_REMOVE: "one record added or removed",
    Unit.RECORD_REPLACE: "one record replaced",
}
#: What is guessed by someone who knows everything else: which of two neighbouring data sets it was.
_UNIT_GUESSES = {
    Unit.LABEL: "between two values of one label",
    Unit.PERSON: "between two versions of a person's labels",
    Unit.RECORD_ADD_REMOVE: "whether a record was there",
    Unit.RECORD_REPLACE: "between two versions of a record",
}


class Trust(Flag):
    """Whom the owner of a label must trust with it: no one, a curator who sees it, or her peers."""

    NO_ONE = 0
    CURATOR = 1
    PEERS = 2

    @property
    def words(self) -> str:
        """The trusted in words.

        >>> (Trust.CURATOR | Trust.PEERS).words
        'a curator and her peers'
        """
        return " and ".join(_TRUST_WORDS[member] for member in self.members) or "no one"

    @property
    def members(self) -> tuple[Trust, ...]:
        """Each of the trusted apart."""
        return tuple(member for member in _TRUST_WORDS if member in self)


#: What a promise that needs no curator does not say: labels could have been randomized by their owners, not that they were.
HOLDER_HAS_SEEN = "whoever holds the raw labels has seen them: the promise is about what was released"
_TRUST_WORDS = {Trust.CURATOR: "a curator", Trust.PEERS: "her peers"}


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """A privacy loss, the unit it protects, the trust it needs and the assumptions it stands on.

    Build one with `pure`, `bounded_range`, `zcdp`, `rdp`, `gaussian`, `discrete_gaussian` or `profile`; compose with `then`, `beside` and
    `times`; ask it for `epsilon(delta)` and `delta(epsilon)`, both upper bounds and the tightest known.

    Fields
    ------
    loss : Loss
        The privacy loss: a value of `labeldp.loss` that answers epsilon(delta) and delta(epsilon).
    unit : Unit
        Which change of the data is hidden. Guarantees of two units do not compose: `for_persons` and `for_labels` convert.
    trust : Trust
        Whom the owner of a label must trust with it.
    assumptions : tuple of str
        What else must hold, in words; kept sorted, each once.
    name : str
        What this is called as a line of a composed budget; for display.
    parts : tuple of (str, Guarantee)
        What it was composed of, by name; for display.
    label_loss : Loss, optional
        Where all labels of a person are hidden, what is known of one of them: no more than `loss`, which covers it too.

    Edge cases
    ----------
    Infinite epsilon means no privacy, and whatever it is composed with has none either. A loss of zero disappears in a
    composition.
    """

    loss: Loss
    unit: Unit = Unit.LABEL
    trust: Trust = Trust.NO_ONE
    assumptions: tuple[str, ...] = ()
    name: str = field(default="", compare=False)
    parts: tuple[tuple[str, Guarantee], ...] = field(default=(), compare=False, repr=False)
    label_loss: Loss | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Bring unit and assumptions into normal form: the order in which they were made says nothing."""
        object.__setattr__(self, "unit", read_unit(self.unit))
        if self.label_loss is not None and self.unit is not Unit.PERSON:
            raise invalid("Guarantee", "label_loss", "be left out where no person is hidden", got=self.unit.value)
        object.__setattr__(self, "assumptions", tuple(sorted(set(self.assumptions))))

    @classmethod
    def pure(
        cls,
        epsilon: float,
        *,
        unit: Unit = Unit.LABEL,
        trust: Trust = Trust.NO_ONE,
        assumptions: Sequence[str] = (),
    ) -> Guarantee:
        """Return pure epsilon-DP: no output is more than e^epsilon times likelier under a neighbour.

        `epsilon` is in [0, inf]. `unit`, `trust` and `assumptions`, here and below, are the fields of the class.
        """
        loss = Pure(worst=check_epsilon("Guarantee.pure", epsilon))
        return cls(loss=loss, unit=unit, trust=trust, assumptions=tuple(assumptions))

    @classmethod
    def bounded_range(
        cls,
        epsilon: float,
        *,
        unit: Unit = Unit.LABEL,
        trust: Trust = Trust.NO_ONE,
        assumptions: Sequence[str] = (),
    ) -> Guarantee:
        """Return the guarantee of an exponential mechanism: the log-ratios of its outputs span at most epsilon.

        It is pure epsilon-DP, and composes better than that: as zCDP of epsilon^2/8.
        """
        loss = BoundedRange(width=check_epsilon("Guarantee.bounded_range", epsilon))
        return cls(loss=loss, unit=unit, trust=trust, assumptions=tuple(assumptions))

    @classmethod
    def zcdp(
        cls,
        rho: float,
        *,
        slack: float = 0.0,
        unit: Unit = Unit.LABEL,
        trust: Trust = Trust.NO_ONE,
        assumptions: Sequence[str] = (),
    ) -> Guarantee:
        """Return `slack`-approximate rho-zCDP: Renyi divergence a * rho at every order a, but for probability `slack`.

        Discrete Gaussian noise of variance sigma^2 on integers of L2 sensitivity s has rho = s^2 / (2 sigma^2), slack 0;
        `discrete_gaussian` says more about it.
        """
        owner = "Guarantee.zcdp"
        loss = ZCDP(rho=check_epsilon(owner, rho, name="rho"), slack=check_delta(owner, slack, name="slack"))
        return cls(loss=loss, unit=unit, trust=trust, assumptions=tuple(assumptions))

    @classmethod
    def rdp(
        cls,
        orders: Sequence[float],
        values: Sequence[float],
        *,
        slack: float = 0.0,
        unit: Unit = Unit.LABEL,
        trust: Trust = Trust.NO_ONE,
        assumptions: Sequence[str] = (),
    ) -> Guarantee:
        """Return the Renyi guarantee with divergence at most values[i] at orders[i], `slack`-approximately.

        Orders are > 1 and rise. Between them the curve is bounded by convexity; beyond the last nothing is known.
        """
        loss = RDP(orders=tuple(orders), values=tuple(values), slack=slack)
        return cls(loss=loss, unit=unit, trust=trust, assumptions=tuple(assumptions))

    @classmethod
    def gaussian(
        cls,
        *,
        sigma: float,
        sensitivity: float,
        unit: Unit = Unit.LABEL,
        trust: Trust = Trust.NO_ONE,
        assumptions: Sequence[str] = (),
    ) -> Guarantee:
        """Return the exact guarantee of N(0, sigma^2) noise on a statistic of this L2 sensitivity.

        `sensitivity` is how far, in Euclidean length, one change of the data (`unit`) can move the statistic. It is never
        pure: `epsilon(0)` is inf.
        """
        owner = "Guarantee.gaussian"
        reach = check_epsilon(owner, sensitivity, name="sensitivity")
        noise = sigma if sigma == math.inf else check_positive(owner, "sigma", sigma)
        loss = Gaussian(mu=quotient_up(reach, noise))
        return cls(loss=loss, unit=unit, trust=trust, assumptions=tuple(assumptions))

    @classmethod
    def discrete_gaussian(
        cls,
        *,
        variance: Fraction | float,
        sensitivity: float,
        unit: Unit = Unit.LABEL,
        trust: Trust = Trust.NO_ONE,
        assumptions: Sequence[str] = (),
    ) -> Guarantee:
        """Return the exact guarantee of discrete Gaussian noise on integers of this L2 sensitivity.

        `variance` is V in Pr[z] ~ e^(-z^2/(2 V)), the parameter of the sampler; `sensitivity` is how far, in Euclidean
        length, one change of the data moves the vector of integers. It is never pure: `epsilon(0)` is inf.
        """
        loss = DiscreteGaussian.from_reach(variance=variance, reach=sensitivity)
        return cls(loss=loss, unit=unit, trust=trust, assumptions=tuple(assumptions))

    @classmethod
    def profile(
        cls,
        epsilons: Sequence[float],
        deltas: Sequence[float],
        *,
        unit: Unit = Unit.LABEL,
        trust: Trust = Trust.NO_ONE,
        assumptions: Sequence[str] = (),
    ) -> Guarantee:
        """Return the guarantee with privacy profile deltas[i] at epsilons[i], worst over both directions.

        For mechanisms whose outputs can be enumerated. Epsilons rise from >= 0; deltas do not rise, and are convex in
        e^epsilon, as every profile is.
        """
        loss = Profile(epsilons=tuple(epsilons), deltas=tuple(deltas))
        return cls(loss=loss, unit=unit, trust=trust, assumptions=tuple(assumptions))

    def epsilon(self, delta: float = 0.0) -> float:
        """Return the least known epsilon at which (epsilon, delta)-DP holds, rounded up; inf where none does."""
        return self.loss.epsilon(check_delta("Guarantee.epsilon", delta))

    def delta(self, epsilon: float) -> float:
        """Return the least known delta at which (epsilon, delta)-DP holds, rounded up."""
        return self.loss.delta(check_epsilon("Guarantee.delta", epsilon))

    def then(self, other: Guarantee) -> Guarantee:
        """Return both in sequence, on the same labels; `other` may depend on what this one released.

        Epsilons add at most; the loss keeps its parts, so that `epsilon(delta)` is the tightest known for all of them.
        """
        return self.in_sequence([self, other])

    def beside(self, other: Guarantee) -> Guarantee:
        """Return both in parallel: disjoint parts of the data, split without looking at what is protected.

        One changed label lies in one part only, so the larger of the two losses counts. Where all labels of a person are
        hidden (`Unit.PERSON`) no person may have labels in both parts: whoever composes them splits by persons
        (`labeldp.release.persons.check_apart` compares), and otherwise uses `then`.
        """
        return self.in_parallel([self, other])

    def times(self, count: int) -> Guarantee:
        """Return `count` of this in sequence."""
        number = check_integer("Guarantee.times", "count", count, least=0)
        loss = sequence([(self.loss, number)])
        about_label = None if self.label_loss is None else sequence([(self.label_loss, number)])
        parts = ((f"{number} x {self._title()}", self),)
        return dataclasses.replace(self, loss=loss, name="", parts=parts, label_loss=about_label)

    def for_persons(self, most_rows: int) -> Guarantee:
        """Return what a promise about one label is about all labels of a person who has at most `most_rows` of them.

        Group privacy (`labeldp.loss.group`): pure epsilon becomes `most_rows` times epsilon. It holds whatever the release was,
        and is the price of having asked about labels one by one: `privatize(..., persons=...)` promises more.

        >>> print(Guarantee.pure(0.5).for_persons(4).headline)
        epsilon = 2 at delta = 0 (pure), all labels of one person replaced; trusts no one
        """
        number = check_integer("Guarantee.for_persons", "most_rows", most_rows, least=1)
        if self.unit is not Unit.LABEL:
            fix = "Only a promise about one label is converted; one about persons is one already."
            raise invalid(
                "Guarantee.for_persons", "unit", "be `label`", got=self.unit.value, fix=fix, kind=PrivacyError
            )
        return dataclasses.replace(
            self,
            loss=group_loss(self.loss, number),
            unit=Unit.PERSON,
            assumptions=(*self.assumptions, MOST_ROWS.format(rows=f"{number:,}")),
            parts=tuple((name, part.for_persons(number)) for name, part in self.parts),
            label_loss=self.loss,
        )

    def for_labels(self) -> Guarantee:
        """Return what a promise about all labels of a person is about one of them: never less private.

        Whoever replaces one label replaces labels of one person. Where more is known of one label, that is returned.

        >>> Guarantee.pure(0.5).for_persons(4).for_labels().epsilon()
        0.5
        """
        if self.unit is not Unit.PERSON:
            raise invalid("Guarantee.for_labels", "unit", "be `person`", got=self.unit.value, kind=PrivacyError)
        parts = tuple((n, part.for_labels() if part.unit is Unit.PERSON else part) for n, part in self.parts)
        loss = self.loss if self.label_loss is None else self.label_loss
        return dataclasses.replace(self, loss=loss, unit=Unit.LABEL, parts=parts, label_loss=None)

    @staticmethod
    def in_sequence(guarantees: Iterable[Guarantee]) -> Guarantee:
        """Return all of them in sequence; the same as `then` from left to right, in one pass."""
        return _combine(list(guarantees), lambda losses: sequence((loss, 1) for loss in losses))

    @staticmethod
    def in_parallel(guarantees: Iterable[Guarantee]) -> Guarantee:
        """Return all of them in parallel; the same as `beside` from left to right, in one pass."""
        return _combine(list(guarantees), parallel)

    def named(self, name: str) -> Guarantee:
        """Return a copy with this display name: one line of a composed budget."""
        return dataclasses.replace(self, name=name)

    def assuming(self, text: str) -> Guarantee:
        """Return a copy that stands on one more assumption."""
        return dataclasses.replace(self, assumptions=(*self.assumptions, text))

    def trusting(self, trust: Trust) -> Guarantee:
        """Return a copy that needs this trust as well."""
        return dataclasses.replace(self, trust=self.trust | trust)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types: `json.dumps(..., allow_nan=False)` accepts them."""
        return {
            "loss": self.loss.to_json(),
            "unit": self.unit.value,
            "trust": [str(member.name).lower() for member in self.trust.members],
            "assumptions": list(self.assumptions),
            "name": self.name,
            "parts": [{"name": name, "guarantee": part.to_json()} for name, part in self.parts],
            **({} if self.label_loss is None else {"label_loss": self.label_loss.to_json()}),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Guarantee:
        """Return the guarantee that `to_json` wrote; equal to it, and with the same numbers."""
        _check_json_fields(data)
        return cls(
            loss=read_loss(data["loss"]),
            unit=data["unit"],
            trust=_read_trust(data["trust"]),
            assumptions=tuple(data.get("assumptions", ())),
            name=data.get("name", ""),
            parts=tuple((part["name"], cls.from_json(part["guarantee"])) for part in data.get("parts", ())),
            label_loss=read_loss(data["label_loss"]) if "label_loss" in data else None,
        )

    @property
    def seeded(self) -> bool:
        """Whether the noise came from a seed: whoever knows it can take the noise away."""
        return SEEDED in self.assumptions

    @property
    def headline(self) -> str:
        """The promise on one line: what it costs, which change it hides and whom it trusts, without its assumptions."""
        return self.headline_at(SHOWN_DELTA)

    def headline_at(self, delta: float) -> str:
        """Return the headline of a promise that is not pure at another delta than the usual one."""
        return f"{self.cost_at(delta)}, {self.unit.sentence}; trusts {self.trust.words}"

    def __str__(self) -> str:
        """Return the headline, what a promise without a curator does not cover, and each assumption, on a line each.

        Where all labels of a person are hidden, and more is known of one of them, that stands on the second line.
        """
        notes = [] if self.label_loss is None else [f"of one label alone: {self.for_labels().cost}"]
        notes += [] if Trust.CURATOR in self.trust else [HOLDER_HAS_SEEN]
        return "\n  ".join([self.headline, *notes, *(f"assumes: {text}" for text in self.assumptions)])

    @property
    def cost(self) -> str:
        """What it costs, in words: epsilon, at which delta, and of which kind the loss is."""
        return self.cost_at(SHOWN_DELTA)

    def cost_at(self, delta: float) -> str:
        """Return what it costs in words, at this delta where it is not pure."""
        worst = self.epsilon()
        if math.isfinite(worst):
            return f"epsilon = {format_up(worst)} at delta = 0 (pure)"
        slack = f", slack = {format_up(self.loss.slack)}" if self.loss.slack else ""
        return f"epsilon = {format_up(self.epsilon(delta))} at delta = {delta:g} ({self.loss.kind}{slack})"

    def card_rows(self) -> list[tuple[str, str]]:
        """Return the promise as names and texts for a card: what, about what, whom it trusts, and what it stands on."""
        rows = [("promises", self.cost), ("hides", self.unit.sentence), ("so that", self._guess_words())]
        if self.label_loss is not None:
            rows.append(("of one label", self.for_labels().cost))
        rows.append(("trusts", self.trust.words))
        rows += [] if Trust.CURATOR in self.trust else [("but", HOLDER_HAS_SEEN)]
        rows += [("made of", f"{name}: {part.cost}") for name, part in self.parts]
        return [*rows, *(("assumes", text) for text in self.assumptions)]

    def _guess_words(self) -> str:
        """Return what the promise means to someone who guesses between two neighbouring data sets, rounded up."""
        epsilon, delta = self.epsilon(), 0.0
        if math.isinf(epsilon):
            epsilon, delta = self.epsilon(SHOWN_DELTA), SHOWN_DELTA
        if math.isinf(epsilon):
            return "nothing is hidden"
        share = percent(best_guess(epsilon, delta=delta), up=True)
        return f"a guess {_UNIT_GUESSES[self.unit]} that is right 50% of the time before is right at most {share} after"

    def _repr_html_(self) -> str:
        """Return the promise as a card for a notebook."""
        return card(self.name or "Guarantee", rows=self.card_rows(), warning=NOT_PRIVATE if self.seeded else "")

    def _title(self) -> str:
        return self.name or self.loss.kind

    def lines(self) -> tuple[tuple[str, Guarantee], ...]:
        """Return (name, guarantee) of each line of a budget table: a nameless composition shows its own parts."""
        return self.parts if self.parts and not self.name else ((self._title(), self),)


def _combine(guarantees: list[Guarantee], rule: Any) -> Guarantee:
    """Return the composition of guarantees of one unit; `rule` composes their losses, the rest is united."""
    if not guarantees:
        raise invalid("Guarantee", "guarantees", "hold at least one", got=guarantees)
    units = sorted({guarantee.unit.value for guarantee in guarantees})
    if len(units) > 1:
        fix = "State both in one unit first: about persons, a promise about labels is guarantee.for_persons(most_rows)."
        raise invalid(
            "Guarantee",
            "unit",
            "be the same in a composition",
            got=Described(" and ".join(units)),
            fix=fix,
            kind=PrivacyError,
        )
    trust = Trust.NO_ONE
    for guarantee in guarantees:
        trust |= guarantee.trust
    about_label = None
    if any(guarantee.label_loss is not None for guarantee in guarantees):
        about_label = rule([guarantee.for_labels().loss for guarantee in guarantees])
    return Guarantee(
        label_loss=about_label,
        loss=rule([guarantee.loss for guarantee in guarantees]),
        unit=guarantees[0].unit,
        trust=trust,
        assumptions=tuple(text for guarantee in guarantees for text in guarantee.assumptions),
        parts=tuple(line for guarantee in guarantees for line in guarantee.lines()),
    )


def read_unit(value: Any) -> Unit:
    """Return the unit that a value of `Unit`, or its text, names; anything else is refused with the nearest name."""
    try:
        return Unit(value)
    except ValueError:
        known = [unit.value for unit in Unit]
        fix = nearest(str(value), known)
        raise invalid("Guarantee", "unit", "name a neighbouring relation", got=value, fix=fix) from None


def _read_trust(names: Any) -> Trust:
    """Return the union of the named trusts."""
    known = {str(member.name).lower(): member for member in _TRUST_WORDS}
    trust = Trust.NO_ONE
    for name in names:
        if name not in known:
            raise invalid("Guarantee.from_json", "trust", "name whom to trust", got=name, fix=nearest(str(name), known))
        trust |= known[name]
    return trust


def _check_json_fields(data: Any) -> None:
    """Refuse what is not a guarantee's JSON: a promise is never guessed."""
    must_have = ("loss", "unit", "trust")
    may_have = ("assumptions", "name", "parts", "label_loss")
    got = list(data) if isinstance(data, dict) else []
    if not set(must_have) <= set(got) or not set(got) <= {*must_have, *may_have}:
        must = f"be an object with {', '.join(must_have)}, and perhaps {', '.join(may_have)}"
        fix = "It reads what `Guarantee.to_json` has written"
        fix += "; text is parsed first: json.loads(text)." if isinstance(data, (str, bytes)) else "."
        seen = Described(f"an object with {', '.join(map(str, got[:8]))}") if got else data
        raise invalid("Guarantee.from_json", "data", must, got=seen, fix=fix)
    for name in ("trust", "assumptions"):
        found = data.get(name, [])
        if not isinstance(found, (list, tuple)) or not all(isinstance(one, str) for one in found):
            raise invalid("Guarantee.from_json", name, "be a list of texts", got=found)
    if not isinstance(data.get("name", ""), str):
        raise invalid("Guarantee.from_json", "name", "be a text", got=data["name"])
    parts = data.get("parts", [])
    if not isinstance(parts, (list, tuple)) or not all(
        isinstance(part, dict) and set(part) == {"name", "guarantee"} and isinstance(part["name"], str)
        for part in parts
    ):
        raise invalid("Guarantee.from_json", "parts", "be a list of objects with name and guarantee", got=parts)


def format_up(value: float) -> str:
    """Return a number in six digits, rounded up from the shortest decimal that names it.

    >>> format_up(1.0), format_up(0.1), format_up(1.00000001), format_up(math.inf)
    ('1', '0.1', '1.00001', 'inf')
    """
    if math.isinf(value):
        return "inf"
    rounded = Context(prec=6, rounding=ROUND_CEILING).create_decimal(Decimal(repr(float(value))))
    return f"{float(rounded):.6g}"


#: C libraries promise tanh to about two units in the last place (4e-16); this is twice that, upwards.
ROUND_UP = 1.0 + 2.0**-50


def advantage_bound(epsilon: float, *, delta: float = 0.0) -> float:
    """Return (E - 1 + 2 delta) / (E + 1), E = e^epsilon: the most that two labels' outputs can differ in any event.

    *Derivation.* Let an event have probability t under one label and f under the other. Privacy says t <= E f + delta and,
    for the complement, 1 - f <= E (1 - t) + delta. Add them: (t - f)(1 + E) <= E - 1 + 2 delta. Randomized response
    between two labels attains it at delta = 0. Rounded up, as privacy numbers are.
    """
    # (E - 1) / (E + 1) = tanh(epsilon / 2) does not overflow, and 2 / (E + 1) = 1 - tanh(epsilon / 2).
    half = math.tanh(check_epsilon("advantage_bound", epsilon) / 2.0)
    return min(1.0, (half + check_delta("advantage_bound", delta) * (1.0 - half)) * ROUND_UP)


def best_guess(epsilon: float, *, delta: float = 0.0) -> float:
    """Return the most often that a guess between two labels, even before, can be right after the release. Rounded up."""
    return min(1.0, (1.0 + advantage_bound(epsilon, delta=delta)) / 2.0 * ROUND_UP)


def what_is_left(budget: float, *, after: float) -> float:
    """Return the largest pure epsilon that, in sequence with the pure epsilon `after`, keeps within `budget`.

    Sums of guarantees are exact and round up, so the last digit of a difference matters.

    >>> 0.1 + what_is_left(0.3, after=0.1) <= 0.3
    True
    """
    total, spent = (
        check_epsilon("what_is_left", budget, name="budget"),
        check_epsilon("what_is_left", after, name="after"),
    )
    if math.isinf(total):
        return total
    if spent > total:
        raise invalid("what_is_left", "after", f"be within the budget {total:g}", got=after, kind=BudgetError)
    rest = total - spent
    # The difference is rounded to nearest: one step down mends it if it went up.
    return rest if Fraction(spent) + Fraction(rest) <= Fraction(total) else math.nextafter(rest, 0.0)
