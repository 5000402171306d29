"""What may be spent on labels: divided, stated with all that it stands on, and charged once.

>>> from labeldp.release import SensitiveLabels
>>> labels = SensitiveLabels(["yes", "no", "no"], classes=["no", "yes"], name="answers")
>>> print(Budget(owner="example", labels=labels).state(Guarantee.pure(1.0), "the prior is public"))
epsilon = 1 at delta = 0 (pure), one label replaced; trusts no one
  whoever holds the raw labels has seen them: the promise is about what was released
  assumes: the prior is public

Whoever releases anything about labels states what the release stands on, divides epsilon and charges the ledger through a
`Budget`. Nothing else in the house writes an assumption or charges a ledger, so that what one path knows no other path can
forget.

**Rounding.** A budget divided into parts must not grow when they are added up again. The largest float `part` with
``count * part <= spent`` is found by exact arithmetic (`equal_parts`): the sum of the parts, taken exactly, is at most what
was given. Where parts compose by a privacy profile that is computed on a grid and rounded up, room is left for the rounding
(`ROOM`, `ROOMS`), and the promise is compared with the budget before anything is spent.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from labeldp.errors import AccountWarning, Described, OtherKeyError, PrivacyError, invalid
from labeldp.guarantee import SEEDED, Guarantee, Trust, Unit, did_not_see, what_is_left
from labeldp.release.labels import SensitiveLabels, check_classes_shared
from labeldp.release.numbers import say_bounds

if TYPE_CHECKING:
    from labeldp.accounting import EntryNumber, ProtectedRows, RowKey


#: What a promise about records stands on, where one about labels stands on features that did not see them.
OWN_RECORD_ALONE = "the features of a record were made from that record alone"
#: What a promise stands on whose list of classes is the list of those that occur.
CLASSES_READ_OFF = "the list of classes is public (it was read off the labels)"
#: What a promise about numbers stands on, and what was done to them first.
BOUNDS_PUBLIC = "the bounds [{bounds}] did not see these labels"
CLIPPED = BOUNDS_PUBLIC + "; numbers outside were clipped to them"


#: Epsilons of one measured statistic. Below, noise of integers of 64 bits, and squares of it in floats, have no room left; above,
#: noise is 0 but for chances that no float has. No noise at all is math.inf.
MEASURABLE = (1e-9, 1e6)


def check_measurable(owner: str, epsilon: float, *, of: float | None = None) -> float:
    """Return the epsilon of a statistic that is measured; refuse, before anything is charged, one that no noise here can have.

    `of` is the epsilon that it is a part of, where the user did not say it herself. 0 is for whoever divides: such a part is left out.
    """
    low, high = MEASURABLE
    if low <= epsilon <= high or epsilon == 0 or math.isinf(epsilon):
        return epsilon
    got = Described(f"{epsilon:g}" if of is None else f"{epsilon:.3g} of {of:g}")
    fix = "Nothing was charged. Less than that tells nothing of labels, and more hides nothing: then use math.inf."
    must = f"leave a statistic of labels from {low:g} to {high:g}, or math.inf"
    raise invalid(owner, "epsilon", must, got=got, fix=fix)


class LabelSet(Protocol):
    """Labels as a ledger knows them: `SensitiveLabels` in memory, or the rows of a table."""

    @property
    def name(self) -> str:
        """What the ledger calls them; a budget belongs to a name. An `AccountName` knows the rows too (`open_account`)."""

    @property
    def classes_read_off(self) -> bool:
        """Whether the list of classes was read off the labels."""

    @property
    def n_classes(self) -> int:
        """K."""

    @property
    def beside(self) -> tuple[str, ...]:
        """What was handed in with the labels, in words ("features"), and must not have seen them."""

    def __len__(self) -> int: ...

    def fingerprint(self, *, start: int = 0) -> str:
        """Return what the ledger knows these rows by."""


class Costly(Protocol):
    """A source of beliefs that says beforehand what it costs (a `labeldp.priors.Prior`)."""

    def promise(self, budget: float, *, n_examples: int, n_classes: int) -> Guarantee:
        """Return what the beliefs will cost of `budget`, with their trust and assumptions."""


class Split(NamedTuple):
    """A budget divided: what the prior spends, what the response to labels gets, and the promise of both together.

    `mechanism` is the one that was given, at the epsilon that is left for it.
    """

    spent: float
    response: float
    promise: Guarantee
    mechanism: Any = None


class Shares(NamedTuple):
    """A budget divided evenly over stages: (epsilon, delta) and the promise of each one, and the promise of all together."""

    epsilon: float
    delta: float
    promise: Guarantee
    part: Guarantee


class SearchShares(NamedTuple):
    """A search's budget divided: (epsilon, delta) of each fit, epsilon of all scores together, and the whole promise."""

    epsilon: float
    delta: float
    score: float
    promise: Guarantee


#: Room, relatively, for the rounding of a sum of equal shares and for the calibration of each of them.
ROOM = 1e-9
#: Room for a sum of equal (epsilon, delta): its privacy profile is computed on a grid, and rounded up.
ROOMS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1)


@dataclass(frozen=True, kw_only=True, eq=False)
class Budget:
    """What is spent on one set of labels: divided, stated with all that it stands on, and charged once.

    Parameters
    ----------
    owner : str
        Who spends, for messages.
    labels : LabelSet
        Whose budget it is.
    ledger : Ledger, optional
        Where it is written down, before anything is drawn. Without one nothing is recorded.
    seeded : bool
        Whether the noise will come from a seed: the ledger says so.
    start : int
        The position of the first row in a data set given in pieces.
    given : tuple of str
        What else its user handed in for this release, in words: "prior", "grouping". None of it may have seen the labels.
    persons : Persons, optional
        Who owns the rows, where all labels of a person are protected together. Then the ledger's account is that of these persons: it
        recognises them by their ids, in whichever rows they are met again. A list of classes that was read off labels in memory and
        names one that a person alone has is refused here, so that it is before any charge; a table's rows are looked at by
        whoever reads them (`labeldp.engines`).

    Guarantee
    ---------
    The parts of a split never exceed the whole: `what_is_left` and equal shares round down, and the promise of a split is
    evaluated against the budget before it is returned. `state` adds what the labels themselves assume, what was handed in
    beside them, and whether the noise has a seed; it is the only place that knows.

    Example
    -------
    >>> from labeldp.release import SensitiveLabels
    >>> labels = SensitiveLabels(["a", "b", "a", "b"])
    >>> budget = Budget(owner="example", labels=labels, given=("prior",))
    >>> print(budget.state(Guarantee.pure(1.0)))
    epsilon = 1 at delta = 0 (pure), one label replaced; trusts a curator
      assumes: the list of classes is public (it was read off the labels)
      assumes: the prior did not see these labels
    >>> budget.share(1.0, 0.0, stages=4, name="count").promise.epsilon() <= 1.0
    True
    """

    owner: str
    labels: LabelSet
    ledger: Any = None
    seeded: bool = False
    start: int = 0
    given: tuple[str, ...] = ()
    persons: Any = None

    def __post_init__(self) -> None:
        if self.ledger is not None and not callable(getattr(self.ledger, "charge", None)):
            fix = "Open one: labeldp.Ledger(path, budget=...)."
            raise invalid(
                self.owner, "ledger", "be a Ledger", got=Described(f"a {type(self.ledger).__name__}"), fix=fix
            )
        if self.persons is not None and isinstance(self.labels, SensitiveLabels):
            check_classes_shared(self.labels, self.persons)

    def state(self, promise: Guarantee, *assumptions: str) -> Guarantee:
        """Return the promise with what it stands on.

        That is: the given assumptions; that neither what was handed in for this release nor what came beside the labels
        saw them; that the seed of the noise, if it has one, stays secret; that bounds of numbers are public, and that numbers
        were clipped to them; and, where the list of classes was read off
        pooled labels, that it is public, and that whoever read it, a curator who sees them all, is trusted.
        """
        # Where a whole record is protected its features may tell its label; they must not tell of other records.
        if promise.unit in (Unit.LABEL, Unit.PERSON):
            known = [*assumptions, *did_not_see(*self.labels.beside, *self.given)]
        else:
            known = [*assumptions, *([OWN_RECORD_ALONE] if self.labels.beside else []), *did_not_see(*self.given)]
        bounds = getattr(self.labels, "bounds", None)  # of numbers in memory
        if bounds is not None:
            said = BOUNDS_PUBLIC if getattr(self.labels, "outside", None) == "refuse" else CLIPPED
            known.append(said.format(bounds=say_bounds(bounds)))
        if self.labels.classes_read_off:
            known.append(CLASSES_READ_OFF)
            promise = promise.trusting(Trust.CURATOR)
        if self.seeded:
            known.append(SEEDED)
        return replace(promise, assumptions=(*promise.assumptions, *known))

    def split(
        self,
        epsilon: float,
        *,
        prior: Costly,
        response: bool = True,
        mechanism: Any = None,
        same_noise: bool = False,
    ) -> Split:
        """Divide epsilon between a prior and the response that it informs; they compose in sequence on the same labels.

        The prior says what it costs, and the response gets what is left. Without a response (no label is released) the
        prior may take all of it. With a `mechanism` the response is that mechanism at the epsilon that is left, and the
        promise is its own, with its trust and its parts; otherwise the response is pure epsilon.

        `same_noise` says that labels will be released under the key and by the mechanism that the prior draws them with.
        A prior that draws labels (`draws_labels`, a LearnedPrior) is refused elsewhere: they would be drawn twice.
        """
        if getattr(prior, "draws_labels", False) and not same_noise:
            fix = "It is for privatize_table; LabelPrivateClassifier(stages=2) learns in stages itself."
            raise invalid(self.owner, "prior", "not draw labels itself", got=type(prior).__name__, fix=fix)
        before = self.about_unit(prior.promise(epsilon, n_examples=len(self.labels), n_classes=self.labels.n_classes))
        spent = check_measurable(self.owner, before.epsilon(), of=epsilon)
        if not response:
            if not spent <= epsilon:
                raise invalid(self.owner, "epsilon", f"cover the prior's cost {spent:g}", got=epsilon)
            return Split(spent, 0.0, self.state(before.named("prior") if spent > 0 else before))
        if spent > 0 and not spent < epsilon:
            fix = "Give it a larger epsilon or the prior a smaller one."
            raise invalid(self.owner, "epsilon", f"exceed the prior's cost {spent:g}", got=epsilon, fix=fix)
        left = what_is_left(epsilon, after=spent)
        if mechanism is not None:
            mechanism = self.fit_mechanism(mechanism, left)
        answer = Guarantee.pure(left).named("response") if mechanism is None else mechanism.guarantee
        answer = self.about_unit(answer)
        if spent > 0:
            return Split(spent, left, self.state(before.named("prior").then(answer.named("response"))), mechanism)
        # A prior that costs nothing leaves its assumptions and whom it trusts behind, and no part of the promise.
        assumptions, trust = (*before.assumptions, *answer.assumptions), before.trust | answer.trust
        return Split(spent, left, self.state(replace(answer, assumptions=assumptions, trust=trust)), mechanism)

    def about_unit(self, promise: Guarantee) -> Guarantee:
        """Return what a part may spend in the unit of this budget: where persons are given, on all labels of a person.

        For parts that are still to be spent: whoever spends one hands the persons on, and `check_spent` compares the units.
        """
        if self.persons is None or promise.unit is not Unit.LABEL:
            return promise
        return replace(
            promise, unit=Unit.PERSON, parts=tuple((name, self.about_unit(part)) for name, part in promise.parts)
        )

    def fit_mechanism(self, mechanism: Any, epsilon: float) -> Any:
        """Return a mechanism that promises no more than epsilon: itself if that is its own, or itself at that epsilon."""
        own = mechanism.guarantee.epsilon()
        fitted = mechanism if own == epsilon else mechanism.with_epsilon(epsilon)
        if not fitted.guarantee.epsilon() <= epsilon:
            raise PrivacyError(
                f"{self.owner}: {fitted!r} promises epsilon = {fitted.guarantee.epsilon()!r}, and {epsilon!r} is left "
                "for it. Nothing was drawn. Fix its `with_epsilon` or its `guarantee`."
            )
        return fitted

    def take_share(self, epsilon: float, *, share: float) -> tuple[float, float]:
        """Divide epsilon in two parts that compose in sequence: a share in [0, 1] of it, and what is left.

        Exactly added, the parts never exceed epsilon. Nothing is left after all of it, and 0 of an infinite epsilon is 0.

        >>> from labeldp.release import SensitiveLabels
        >>> Budget(owner="example", labels=SensitiveLabels([0, 1], n_classes=2)).take_share(1.0, share=0.6)
        (0.6, 0.4)
        """
        if not 0 <= share <= 1:
            raise invalid(self.owner, "share", "be in [0, 1]", got=share)
        part = epsilon * share if share > 0 else 0.0
        return part, 0.0 if share == 1 else what_is_left(epsilon, after=part)

    def share(self, epsilon: float, delta: float, *, stages: int, name: str) -> Shares:
        """Divide (epsilon, delta) evenly over stages of a curator's measurements that compose in sequence.

        With delta = 0 each stage has epsilon / stages. With delta > 0 each has a Gaussian loss mu / sqrt(stages), where mu is
        the largest that meets the budget: squares of mu add up. A stage measures `within` that part.
        """
        from labeldp.accounting import analytic_gaussian_sigma

        if math.isinf(epsilon) or delta == 0:
            each = epsilon if math.isinf(epsilon) else math.nextafter(epsilon / stages * (1 - ROOM), 0.0)
            part = Guarantee.pure(each, trust=Trust.CURATOR)
        else:
            sigma = analytic_gaussian_sigma(epsilon=epsilon, delta=delta, sensitivity=math.sqrt(stages) * (1 + ROOM))
            part = Guarantee.gaussian(sigma=sigma, sensitivity=1.0, trust=Trust.CURATOR)
            each = part.epsilon(delta)
        check_measurable(self.owner, each, of=epsilon)
        part = self.about_unit(part)
        parts = [part.named(f"{name} of stage {number + 1}") for number in range(stages)]
        promise = reduce(lambda whole, one: whole.then(one), parts)
        if not promise.epsilon(delta) <= epsilon:
            got = Described(f"{promise.epsilon(delta)!r} at delta {delta:g}")
            raise invalid(self.owner, "epsilon", f"be kept by {stages} stages", got=got)
        return Shares(each, delta, self.state(promise), part)

    def share_search(self, epsilon: float, delta: float, *, fits: int, refit: bool) -> SearchShares:
        """Divide (epsilon, delta) over a curator's search: candidates fitted on some rows, scored on the others.

        The `fits` candidates get equal shares and compose in sequence. Their scores read other rows, disjoint from those of
        the fits, so that the two compose in parallel: all scores together get what all fits together get. A refit of the
        winner on all rows is one more fit, in sequence with both.
        """
        total = fits + int(refit)
        promise = Guarantee.pure(math.inf)
        part = equal_parts(delta, total) if delta else 0.0
        for room in (0.0, *ROOMS):
            whole = epsilon * (1 - room)
            each = whole if math.isinf(whole) else equal_parts(whole, total)
            fit = Guarantee.profile([each], [part]) if part and not math.isinf(each) else Guarantee.pure(each)
            fit = self.about_unit(fit.trusting(Trust.CURATOR))
            score = what_is_left(whole, after=each) if refit else whole
            check_measurable(self.owner, score, of=epsilon)
            scores = self.about_unit(Guarantee.pure(score, trust=Trust.CURATOR)).named("scores on the rows held out")
            candidates = Guarantee.in_sequence([fit] * fits).named(f"fits of {fits} candidates")
            promise = candidates.beside(scores).named("search")
            promise = promise.then(fit.named("refit of the best")) if refit else promise
            if promise.epsilon(delta) <= epsilon:
                return SearchShares(each, part, score, self.state(promise))
        got = Described(f"{promise.epsilon(delta)!r} at delta {delta:g}")
        raise invalid(self.owner, "epsilon", f"be kept by {total} fits", got=got)

    def check_spent(self, measured: Guarantee | None, *, epsilon: float, delta: float = 0.0) -> None:
        """Stop where a part spent more than was charged for it, or promises less: the proof by evaluation."""
        if measured is not None and self.persons is not None and measured.unit is not Unit.PERSON:
            raise PrivacyError(
                f"{self.owner}: a part promises for `{measured.unit.value}`, and all labels of a person were to be hidden. "
                "Nothing more was released. Hand the persons on to it."
            )
        if measured is not None and not measured.epsilon(delta) <= epsilon:
            raise PrivacyError(
                f"{self.owner}: epsilon = {epsilon!r} was charged for a part that spent {measured.epsilon(delta)!r}. "
                "Nothing more was released. Fix what it says it costs."
            )

    def charge(self, promise: Guarantee, *, mechanism: str, note: str = "") -> EntryNumber | None:
        """Write the release into the ledger, or raise BudgetError; return the entry's number, which knows its hash.

        Without a ledger nothing is written, and the answer is None. Labels in memory that have row ids are recognised by them,
        and labels of persons by the persons' ids: her other rows are hers too.
        """
        if self.ledger is None:
            return None
        from labeldp.accounting import EntryNumber

        fingerprint = self.labels.fingerprint(start=self.start)  # refuses ids that are none
        name = self._open_account()
        facts = {"rows": fingerprint, "n_rows": len(self.labels), "mechanism": mechanism, "parts": promise.parts}
        facts |= {"seeded": self.seeded, "note": note}
        try:
            entry = self.ledger.charge(promise, label_set=name, **facts)
        except OtherKeyError:  # another process has made the ledger since the rows were read
            find_rows = getattr(name, "find_rows", None)
            if find_rows is None:
                raise
            renamed = open_account(self.ledger, name, find_rows)
            if renamed != name:  # what was prepared names the account
                raise
            entry = self.ledger.charge(promise, label_set=renamed, **facts)
        return EntryNumber(entry.id, getattr(entry, "hash", ""))

    def find_charge(self, promise: Guarantee, *, note: str) -> EntryNumber | None:
        """Return the entry that paid for this promise under this note: work that goes on is not charged again.

        A note is a word that anybody may write into a ledger, also beside a row that costs nothing. So an entry counts only if it
        has all that `charge` would write now: the promise, the account that pays, the rows and their number.
        """
        noted = () if self.ledger is None else self.ledger.find_noted(note)
        if not noted:
            return None
        account, rows = self._open_account(tell=False), self.labels.fingerprint(start=self.start)
        paid = (promise, str(account), rows, len(self.labels))
        return next((one.id for one in noted if (one.guarantee, one.label_set, one.rows, one.n_rows) == paid), None)

    def _open_account(self, *, tell: bool = True) -> str:
        """Return the account that pays, by the ids of the persons or of the rows where there are any."""
        from labeldp.accounting import protect_ids

        name, ids = self.labels.name, getattr(self.labels, "row_ids", None)
        known: ProtectedRows | None = getattr(name, "rows", None)
        if self.persons is not None:
            if known is None or not known.of_persons:  # whoever looked the rows up before did not know whose they are
                return open_account(
                    self.ledger, name, lambda key: _know_persons(known, self.persons.ids, key), tell=tell
                )
        elif ids is not None and known is None:
            return open_account(self.ledger, name, lambda key: protect_ids(ids, key), tell=tell)
        return name


def _know_persons(known: ProtectedRows | None, ids: Any, key: RowKey) -> ProtectedRows:
    """Return rows as the ledger knows them by their owners, and by their columns where those are known already."""
    from labeldp.accounting import protect_ids

    return protect_ids(ids, key, persons=True) if known is None else known.with_persons(ids, key)


def open_account(ledger: Any, name: str, find_rows: Callable[[RowKey], ProtectedRows], *, tell: bool = True) -> str:
    """Return the account that pays for rows, as a name that knows them; whoever releases a table's labels asks here first.

    Parameters
    ----------
    ledger : Ledger or None
        Without one no row is read, and the name is returned as it is.
    name : str
        The user's word, which stands; or an `AccountName` that nobody chose, which gives way to the account of these rows.
    find_rows : callable
        Returns the rows, hashed under the ledger's key.
    tell : bool
        Whether warnings are given: not where an account is looked up that was opened before.

    Notes
    -----
    Raises `AccountError` where only the owner can say which account is meant, and tells by an `AccountWarning` what she
    might not expect. Nothing is charged yet; `Budget.charge` decides again, in the transaction that writes.
    """
    if ledger is None:
        return name
    from labeldp.accounting import AccountName

    rows = find_rows(ledger.row_key())
    known = AccountName(name, rows, getattr(name, "given", True))
    choice = ledger.choose_account(known)
    for note in choice.notes if tell else ():
        warnings.warn(note, AccountWarning, stacklevel=3)
    return AccountName(choice.label_set, rows, known.given, find_rows)


def assume_public(promise: Guarantee, *things: str) -> Guarantee:
    """Return a promise that also stands on things handed in after the release: public weights that shape a model of it.

    >>> print(assume_public(Guarantee.pure(1.0), "sample weights"))
    epsilon = 1 at delta = 0 (pure), one label replaced; trusts no one
      whoever holds the raw labels has seen them: the promise is about what was released
      assumes: the sample weights did not see these labels
    """
    return replace(promise, assumptions=(*promise.assumptions, *did_not_see(*things))) if things else promise


def equal_parts(spent: float, count: int) -> float:
    """Return the largest float of which `count` add up, exactly, to no more than `spent`.

    >>> equal_parts(0.5, 2), 3 * Fraction(equal_parts(0.1, 3)) <= Fraction(0.1)
    (0.25, True)
    """
    part = spent / count
    while Fraction(part) * count > Fraction(spent):
        part = math.nextafter(part, 0.0)
    return part
