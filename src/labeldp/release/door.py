"""`privatize`: the leaf of the door for labels. The only place where a raw label meets its noise.

>>> import labeldp
>>> labels = labeldp.SensitiveLabels(["a", "b", "b"], classes=["a", "b"])
>>> release = labeldp.privatize(labels, labeldp.RandomizedResponse(epsilon=2.0))
>>> release.guarantee.epsilon(), release.seeded, len(release.labels)
(2.0, False, 3)

Design notes. The order of work is the safety: the channel is made without labels and its exact epsilon is compared with the
mechanism's claim, then the ledger is charged (`Budget`), and only then is noise drawn. The noise of a label is a function
of the key and of its position, so `draw_part`, which an engine calls batch by batch, gives the labels of one call of
`privatize` on all of them, bit for bit; its caller has charged for the whole before the first batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp.arrays import Int64s
from labeldp.channel import FiniteChannel, NumericChannel, join_answers
from labeldp.errors import Described, LabelDPError, PrivacyError, invalid
from labeldp.guarantee import Guarantee
from labeldp.mechanisms import MeasuringMechanism, Mechanism
from labeldp.random import NoiseKey, as_key, over_spans
from labeldp.release.budget import Budget
from labeldp.release.labels import (
    SensitiveLabels,
    as_sensitive,
    as_sensitive_numbers,
    codes_of,
)
from labeldp.release.measurement import Counter, measure
from labeldp.release.persons import ASSIGNMENT, CHOICE, AnswerPlan, Persons, plan_answers
from labeldp.release.queries import LabelCounts
from labeldp.release.release import Release
from labeldp.validate import check_integer

#: Examples per step: their words (1 MiB) and codes stay in a core's cache, and memory does not grow with n.
STEP = 1 << 16
#: The word stream of a key that draws labels (measurements use streams of child keys).
LABEL_STREAM = 0


def privatize(
    labels: Any,
    mechanism: Mechanism,
    *,
    prior: Any = None,
    groups: Any = None,
    rng: Any = None,
    ledger: Any = None,
    start: int = 0,
    persons: Any = None,
    persons_way: str = "one",
    persons_score: Any = None,
) -> Release:
    """Release labels: each one randomized by the mechanism's channel, from secure noise.

    Parameters
    ----------
    labels : SensitiveLabels, or a column of labels
        See `SensitiveLabels` for what the classes are taken to be. Numbers are clipped to the bounds of the mechanism.
    mechanism : Mechanism
        RandomizedResponse, RRTopK, RRWithPrior, ...; for numbers UnbiasedResponse.
    prior : array or batches of arrays, optional
        What is believed about the labels without having seen them: (K,), (C, K) with `groups`, or (n, K). Of numbers, K
        is the number of the mechanism's `levels`.
    groups : array of shape (n,), optional
        The public group of each example.
    rng : None, int or numpy.random.Generator
        None draws a fresh key from the operating system. Anything else is reproducible, hence `seeded`: not private.
    ledger : Ledger, optional
        Charged before anything is drawn; a release over budget is refused.
    start : int
        The position of the first row, so that a data set given in pieces under one key is released exactly as if it
        were given whole. With `persons` each piece is a release of its own: whoever has rows in two pieces answers, and spends,
        in both, and a ledger adds that up.
    persons : Persons, or a column of ids, optional
        Who owns each row. Then the mechanism's epsilon is what a person spends on all her labels, and some of her rows are not
        answered (`Release.rows` says which are).
    persons_way : "one", "shares" or "group"
        How she spends it: on one row (or the few that tell more together, by their computed information), in equal shares on
        all her rows, or as whoever has most rows would (`labeldp.release.persons`).
    persons_score : array of shape (n,), optional
        Public numbers: of each person the rows of the largest are asked. Without them public chance decides.

    Guarantee
    ---------
    That of the mechanism; with `persons`, of all labels of one person replaced, pure epsilon: the exact epsilons of the
    channels are added up over each person's answers, and the largest sum is compared with the claim. The channel's own epsilon is compared with it before anything is drawn. It stands on a prior and
    groups that did not see these labels, and says so where they are given: `prior=one_hot(labels)` would release the
    labels themselves.
    """
    if not isinstance(mechanism, Mechanism):
        raise invalid("privatize", "mechanism", "be a mechanism", got=mechanism, fix="For example RRWithPrior(1.0).")
    first = check_integer("privatize", "start", start, least=0, most=(1 << 63) - 1)  # a block number has 64 bits
    key = as_key("privatize", rng, pieces=True)
    boxed = _box(labels, mechanism, prior)
    owners = None if persons is None else Persons.of(persons, n_rows=len(boxed), owner="privatize")
    given = {"prior": prior, "grouping": groups, ASSIGNMENT: owners, CHOICE: persons_score}
    budget = Budget(
        owner="privatize",
        labels=boxed,
        ledger=ledger,
        seeded=key.seeded,
        start=first,
        given=tuple(name for name, value in given.items() if value is not None),
        persons=owners,
    )
    if owners is not None:
        choice = {"way": persons_way, "score": persons_score}
        return _release_for_persons(boxed, mechanism, owners, key, budget, choice=choice, prior=prior, groups=groups)
    if persons_score is not None or persons_way != "one":
        fix = "They say which rows of a person are asked: pass persons= too."
        raise invalid("privatize", "persons_way and persons_score", "come with persons", got=Described("none"), fix=fix)
    if isinstance(mechanism, MeasuringMechanism):
        return _release_after_counts(boxed, mechanism, key, budget, prior=prior, groups=groups)
    # Of numbers the mechanism itself knows the levels; numbers on a grid have classes.
    channel = mechanism.channel(prior, groups=groups, n_classes=boxed.n_classes or None)
    _check_fit(channel, boxed)
    check_claim(mechanism, channel, claimed=mechanism.guarantee.epsilon())
    guarantee = budget.state(mechanism.guarantee)
    noise = key.claim_rows(first, len(boxed), stream=LABEL_STREAM)
    entry = budget.charge(guarantee, mechanism=repr(mechanism))
    return _draw_release(boxed, mechanism, channel, guarantee, noise, start=first, entry=entry)


def _release_after_counts(
    boxed: SensitiveLabels,
    mechanism: MeasuringMechanism,
    key: NoiseKey,
    budget: Budget,
    *,
    prior: Any,
    groups: Any,
) -> Release:
    """Release by a mechanism that asks for noisy counts first; the whole guarantee is charged before the first one."""
    guarantee, start = budget.state(mechanism.guarantee), budget.start
    noise = key.claim_rows(start, len(boxed), stream=LABEL_STREAM)

    def count(query: LabelCounts, epsilon: float, child: NoiseKey) -> npt.NDArray[np.int64]:
        return measure(boxed, query, epsilon=epsilon, rng=child).value

    counter = Counter(count, mechanism, key, lambda: budget.charge(guarantee, mechanism=repr(mechanism)), start=start)
    channel = mechanism.measured_channel(
        counter, groups=groups, n_classes=boxed.n_classes, n_examples=len(boxed), prior=prior
    )
    _check_fit(channel, boxed)
    check_claim(mechanism, channel, claimed=mechanism.response_epsilon)
    entry = counter.settle()
    release = _draw_release(boxed, mechanism, channel, guarantee, noise, start=start, entry=entry)
    if counter.shares is None:
        return release
    return replace(release, prior=counter.shares, prior_index=counter.groups)


def _release_for_persons(
    boxed: SensitiveLabels,
    mechanism: Mechanism,
    persons: Persons,
    key: NoiseKey,
    budget: Budget,
    *,
    choice: dict[str, Any],
    prior: Any,
    groups: Any,
) -> Release:
    """Release the answers of each person's rows that the plan asks, after adding up what they cost her."""
    start, n = budget.start, len(boxed)
    size = None if boxed.bounds else boxed.n_classes
    plan = plan_answers(persons, mechanism, n_classes=size, prior=prior, first=start, **choice)
    if len(plan.epsilons) > 1 and isinstance(prior, Iterator):
        got, fix = Described("one that is read once"), "Give it as an array."
        raise invalid("privatize", "prior", "be read once for each epsilon of an answer", got=got, fix=fix)
    parts: list[tuple[Int64s, FiniteChannel]] = []
    for epsilon, rows in plan.parts():
        response = budget.fit_mechanism(mechanism, epsilon)
        channel = response.channel(prior, groups=groups, n_classes=size)
        _check_fit(channel, boxed)
        check_claim(response, channel, claimed=epsilon)
        parts.append((rows, channel.place(start, n).take(rows)))
    check_persons(plan, [channel.epsilon for _, channel in parts])
    _join_parts([(channel.empty_codes(0), channel.take(slice(0, 0)).released()) for _, channel in parts])
    guarantee = budget.state(plan.promise_for(mechanism.guarantee))
    noise = key.claim_rows(start, n, stream=LABEL_STREAM)
    entry = budget.charge(guarantee, mechanism=plan.describe(repr(mechanism)))
    codes = codes_of(boxed)
    drawn = [(draw_codes(codes, channel, noise, start=start, rows=rows), channel.released()) for rows, channel in parts]
    outputs, channel = _join_parts(drawn)
    if len(parts) > 1:  # one epsilon after the other: back to the order of rows
        order = np.argsort(np.concatenate([rows for rows, _ in parts]), kind="stable")
        outputs, channel = outputs[order], channel.take(order)
    return replace(
        _describe_release(
            boxed,
            words=plan.describe(repr(mechanism)),
            drawn=outputs,
            channel=channel,
            guarantee=guarantee,
            seeded=noise.seeded,
            start=start,
            entry=entry,
        ),
        rows=None if len(plan.rows) == n else plan.rows,  # where all are answered there is nothing to say
        n_rows=None if len(plan.rows) == n else n,
    )


def _join_parts(parts: list[tuple[Any, FiniteChannel]]) -> tuple[Any, FiniteChannel]:
    """Return answers at several epsilons as one; refuse, before anything is charged, channels that cannot be one."""
    if len(parts) == 1:
        return parts[0]
    try:
        return join_answers(parts)
    except LabelDPError as error:
        got = Described(f"channels that cannot be joined ({error})")
        fix = 'Use InformativeResponse or RandomizedResponse, or persons_way="group".'
        raise invalid("privatize", "mechanism", "answer at several epsilons", got=got, fix=fix) from None


def check_persons(plan: AnswerPlan, actual: Sequence[float]) -> None:
    """Refuse a plan under which some person's answers cost more than was claimed, before anything is charged or drawn.

    `actual` are the exact epsilons of the channels, one for each epsilon of the plan.
    """
    spent = plan.person_epsilon(actual)
    if not spent <= plan.epsilon:
        raise PrivacyError(
            f"privatize: epsilon = {plan.epsilon!r} is claimed for a person, but her answers cost {spent!r} together. "
            "Nothing was drawn."
        )


def _draw_release(
    boxed: SensitiveLabels,
    mechanism: Mechanism,
    channel: FiniteChannel,
    guarantee: Guarantee,
    key: NoiseKey,
    *,
    start: int,
    entry: int | None,
) -> Release:
    """Draw, and state everything that belongs to the release."""
    drawn, public = draw_codes(codes_of(boxed), channel, key, start=start), channel.place(start, len(boxed)).released()
    return _describe_release(
        boxed,
        words=repr(mechanism),
        drawn=drawn,
        channel=public,
        guarantee=guarantee,
        seeded=key.seeded,
        start=start,
        entry=entry,
    )


def _describe_release(
    boxed: SensitiveLabels,
    *,
    words: str,
    drawn: npt.NDArray[np.unsignedinteger[Any]],
    channel: FiniteChannel,
    guarantee: Guarantee,
    seeded: bool,
    start: int,
    entry: int | None,
) -> Release:
    """Return what was drawn with everything that belongs to it."""
    return Release(
        codes=drawn,
        classes=tuple(channel.levels.tolist()) if isinstance(channel, NumericChannel) else boxed.classes,
        channel=channel,
        guarantee=guarantee,
        mechanism=words,
        seeded=seeded,
        start=start,
        label_set=str(boxed.name),
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        ledger_entry=entry,
    )


def draw_codes(
    codes: npt.NDArray[Any], channel: FiniteChannel, key: NoiseKey, *, start: int, rows: Int64s | None = None
) -> npt.NDArray[np.unsignedinteger[Any]]:
    """Draw an output for every label, step by step; example i uses block start + i of the key, whatever the steps.

    With `rows`, rising positions among `codes`, an output is drawn for those alone; `channel` is then theirs, and knows their
    places.
    """
    if rows is None:
        channel = channel.place(start, len(codes))
    key = key.through(lambda: _describe_draw(channel, start, len(codes), rows))
    out = channel.empty_codes(len(codes) if rows is None else len(rows))
    channel.prepare()  # once, here: every part below shares it

    def work(low: int, high: int) -> None:
        chosen = slice(low, high)
        if rows is not None:
            chosen = slice(*np.searchsorted(rows, [low, high]).tolist())
            if chosen.start == chosen.stop:
                return
        words = key.words(start=start + low, count=high - low, stream=LABEL_STREAM)
        part = codes[low:high]
        if rows is not None:
            inside = rows[chosen] - low
            # A block of noise is one number of 16 bytes here: taking them so is three times as fast as taking pairs.
            words = words.reshape(-1).view(np.complex128)[inside].view(np.uint64).reshape(-1, 2)
            part = part[inside]
        part = part if codes.dtype.kind == "f" else part.astype(np.int32)
        drawn = channel.take(chosen).draw(part, words)
        if drawn.ndim == 1 and drawn.astype(np.int64, copy=False).view(np.uint64).max() >= channel.n_outputs:
            # Narrowed to the type of a release such a number would be another one, and might say which label it came from.
            raise PrivacyError(
                f"{type(channel).__name__}: a drawn answer is none of its {channel.n_outputs} outputs; nothing is released. "
                "This is a fault of the channel's `draw`, not of your settings: please report it."
            )
        out[chosen] = drawn

    over_spans(work, len(codes), step=STEP)
    answers: npt.NDArray[np.unsignedinteger[Any]] = out
    return answers


def _describe_draw(channel: FiniteChannel, start: int, count: int, rows: Int64s | None) -> bytes:
    """Return all that decides a draw beside labels and noise: the channel and the rows that it is drawn for."""
    asked = b"all" if rows is None else rows.astype("<i8").tobytes()
    return f"{channel.digest()} {start} {count} ".encode() + asked


def _box(labels: Any, mechanism: Mechanism, prior: Any) -> SensitiveLabels:
    """Return the labels boxed as the mechanism takes them: numbers within its bounds, or classes."""
    if mechanism.takes_numbers:
        return as_sensitive_numbers(labels, mechanism.bounds)  # type: ignore[attr-defined]  # whoever takes numbers has them
    return as_sensitive(labels, _known_n_classes(labels, mechanism, prior))


def _known_n_classes(labels: Any, mechanism: Mechanism, prior: Any) -> int | None:
    """Return K if the mechanism or the prior says it; labels that are boxed already know it themselves."""
    if isinstance(labels, SensitiveLabels):
        return None
    stated = getattr(mechanism, "n_classes", None)
    if stated is None and prior is not None and not isinstance(prior, Iterator):
        first = prior[0] if isinstance(prior, (list, tuple)) and len(prior) and np.ndim(prior[0]) == 2 else prior
        stated = np.shape(first)[-1] if np.ndim(first) else None
    return None if stated is None else int(stated)


def _check_fit(channel: FiniteChannel, labels: SensitiveLabels) -> None:
    """Refuse a channel for another number of labels, or for labels of another kind."""
    numbers = labels.bounds is not None and not labels.classes
    if numbers and not (isinstance(channel, NumericChannel) and channel.bounds == labels.bounds):
        raise invalid(
            "privatize", "mechanism", "have a channel for numbers of its bounds", got=Described("another one")
        )
    if channel.n_examples not in (None, len(labels)):
        got = Described(f"{channel.n_examples} for {len(labels)} labels")
        name = "groups" if channel.example_arrays().keys() == {"row"} else "prior"
        raise invalid("privatize", name, "have one row per label", got=got)


def check_claim(mechanism: Mechanism, channel: FiniteChannel, *, claimed: float) -> None:
    """Refuse a channel that reveals more than its mechanism claims for it, before anything is charged or drawn."""
    if not channel.epsilon <= claimed:
        raise PrivacyError(
            f"privatize: {mechanism!r} claims epsilon = {claimed!r}, but its channel has {channel.epsilon!r}."
            " Nothing was drawn. Fix the mechanism's `channel` or its `guarantee`."
        )


def draw_part(
    labels: SensitiveLabels,
    channel: FiniteChannel,
    *,
    promise: Guarantee,
    key: NoiseKey,
    start: int,
    rows: Int64s | None = None,
) -> npt.NDArray[np.unsignedinteger[Any]]:
    """Draw the outputs of labels `start` .. of a stream, after checking that their channel keeps the promise.

    With `rows` some of them alone are drawn, by a channel that is theirs (`draw_codes`).
    """
    if not channel.epsilon <= promise.epsilon():
        raise PrivacyError(
            f"draw_part: epsilon = {promise.epsilon()!r} is promised, but the channel of the rows from {start} on has "
            f"{channel.epsilon!r}. They were not drawn. Fix the mechanism's `channel` or its `guarantee`."
        )
    return draw_codes(codes_of(labels), channel, key, start=start, rows=rows)
