"""What a guarantee means, in words and in numbers that need no logarithm: the one place for reports and commands.

>>> in_words(1.0)
'whoever guessed right 50% of the time can guess right at most 73.2% of the time after seeing the release'
>>> from labeldp.guarantee import Guarantee
>>> promise_rows(Guarantee.pure(1.0))[2]
('advantage', 'an attacker gains at most 46.3% over a blind guess')

Whatever is released with (epsilon, delta)-differential privacy, a test between two values of one label has true and
false positive rates with tpr <= E fpr + delta and (1 - fpr) <= E (1 - tpr) + delta, E = e^epsilon. Their difference is
largest where both are equalities: advantage = (E - 1 + 2 delta) / (E + 1). From even odds that is a right guess with
probability (1 + advantage) / 2; from prior odds r the posterior odds are at most E r when delta = 0.

Design notes. Numbers about a risk are rounded up, never down. `labeldp.guarantee` is imported inside the functions that
need it: it loads scipy, and `labeldp --help` loads this module.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from labeldp.display import percent as percent  # noqa: PLC0414 - commands and pages find all words here

if TYPE_CHECKING:
    from labeldp.guarantee import Guarantee


# ---------------------------------------------------------------------------------------------------------- numbers


class Cost(NamedTuple):
    """Epsilon, and the delta at which it is read: 0 where epsilon is finite there."""

    epsilon: float
    delta: float


def cost(guarantee: Guarantee, *, delta: float | None = None) -> Cost:
    """Return the pure epsilon of a guarantee, or else its epsilon at a delta, by default that at which it is shown."""
    from labeldp.guarantee import SHOWN_DELTA

    shown = SHOWN_DELTA if delta is None else delta
    pure = guarantee.epsilon()
    at_delta = pure if math.isfinite(pure) else guarantee.epsilon(shown)
    return Cost(at_delta, shown) if at_delta < pure else Cost(pure, 0.0)


def cost_text(epsilon: float, delta: float = 0.0) -> str:
    """Return a cost as tables have it: six digits, rounded up, and the delta where there is one.

    >>> cost_text(1.0), cost_text(0.5, 1e-5)
    ('1', '0.5 at delta 1e-05')
    """
    from labeldp.guarantee import format_up

    return format_up(epsilon) + at_delta(delta)


def at_delta(delta: float) -> str:
    """Return " at delta D" to stand behind an epsilon, or nothing where delta is 0."""
    return f" at delta {delta:g}" if delta else ""


def right_guesses(prior: float, epsilon: float, delta: float = 0.0) -> float:
    """Return how often a guess between two values can be right after a release, for one believed with `prior` before.

    A guess is a test with true and false positive rates (t, f) and is right with probability p t + (1 - p) (1 - f). The
    rates lie in the region t <= E f + delta, 1 - f <= E (1 - t) + delta, and a linear function is largest at a corner:
    (0, delta), (1 - delta, 1), or where both bounds meet, t = 1 - f = (E + delta) / (E + 1).

    >>> round(right_guesses(0.5, 1.0), 4), right_guesses(0.9, 0.0)
    (0.7311, 0.9)
    """
    from labeldp.guarantee import best_guess

    return max(best_guess(epsilon, delta=delta), (1 - prior) + prior * delta, prior + (1 - prior) * delta)


def largest_belief(prior: float, epsilon: float) -> float:
    """Return p E / (p E + 1 - p), the most that a belief p can become by Bayes' rule under pure epsilon.

    >>> round(largest_belief(0.5, 1.0), 4), largest_belief(0.01, math.inf), largest_belief(0.3, 0.0)
    (0.7311, 1.0, 0.3)

    What is impossible stays so, however large epsilon is.

    >>> largest_belief(0.0, 1000.0)
    0.0
    """
    if prior == 0:
        return 0.0  # beyond epsilon = 745, 1 / E is 0 too
    # As p / (p + (1 - p) / E): no overflow.
    return prior / (prior + (1 - prior) * math.exp(-epsilon))


# -------------------------------------------------------------------------------------------------------- sentences


def in_words(epsilon: float, delta: float = 0.0) -> str:
    """Return what anyone can learn about one label, for a reader who has never met epsilon."""
    from labeldp.guarantee import best_guess

    if math.isinf(epsilon):
        return "nothing is hidden: the labels are as they were"
    if epsilon == 0:
        return "nothing about a label can be learned from the release"
    return (
        "whoever guessed right 50% of the time can guess right at most "
        f"{percent(best_guess(epsilon, delta=delta), up=True)} of the time after seeing the release"
    )


def as_sentence(words: str) -> str:
    """Return words with a capital and a full stop.

    >>> as_sentence("nothing is hidden")
    'Nothing is hidden.'
    """
    return f"{words[0].upper()}{words[1:]}."


def odds_in_words(epsilon: float, delta: float = 0.0, *, what: str = "two values of one label") -> str:
    """Return what epsilon says about odds, and the advantage of a test between what the promise hides."""
    from labeldp.guarantee import advantage_bound, format_up

    odds = format_up(math.exp(epsilon)) if epsilon < 700 else "more than 1e300"
    gain = percent(advantage_bound(epsilon, delta=delta), up=True)
    if delta == 0:
        return (
            f"Epsilon is {format_up(epsilon)}: the odds of any {what} change by a factor of at most {odds} "
            f"(e to the power epsilon). A test between the two beats chance by at most {gain}."
        )
    return (
        f"Epsilon is {format_up(epsilon)} at delta = {delta:g}: but for a part of probability delta, what is seen is at most "
        f"{odds} times likelier for one of any {what} than for the other. A test between two beats chance by at most "
        f"{gain}."
    )


def from_whom(guarantee: Guarantee) -> str:
    """Return from whom labels are protected, by whom the guarantee trusts.

    A release knows which trust it needs, not who handled the labels before. A mechanism that needs no one *could* have been
    run by each owner of a label; that it *was* cannot be read off the result, and is not said.
    """
    from labeldp.guarantee import Trust, Unit

    if not guarantee.trust:
        owner = "person could have randomized her labels before anyone else saw them"
        owner = (
            owner
            if guarantee.unit is Unit.PERSON
            else "owner of a label could have randomized it before anyone else saw it"
        )
        return (
            f"From everyone who sees the release, and it needs no trusted party: each {owner}. "
            "Whoever holds the file from which it was made has seen the labels."
        )
    if guarantee.trust == Trust.CURATOR:
        return (
            "From everyone who sees the release. The curator who made it has seen the labels and must be trusted, as must "
            "whoever else can read the file that holds them."
        )
    others = "" if guarantee.trust == Trust.PEERS else " A curator has seen labels too and must be trusted."
    return (
        "From everyone who sees the release, as long as her peers can be trusted not to tell whose noisy label they report. "
        "Where each peer ran her own part, her label was flipped before anyone else saw it; where one party played all parts, "
        f"that party has seen the labels.{others}"
    )


def promise_facts(guarantee: Guarantee) -> dict[str, object]:
    """Return a guarantee as plain facts, for the JSON answer of a command."""
    from labeldp.guarantee import advantage_bound

    epsilon, delta = cost(guarantee)
    return {
        "epsilon": epsilon,
        "delta": delta,
        "unit": guarantee.unit.value,
        "trust": guarantee.trust.words,
        "assumptions": list(guarantee.assumptions),
        "seeded": guarantee.seeded,
        "attacker_advantage": advantage_bound(epsilon, delta=delta),
        "text": guarantee.headline,
        **_label_facts(guarantee),
    }


#: The name and version of the published format; the schema is assets/guarantee.schema.json.
SCHEMA_ID = "urn:labeldp:schema:guarantee:1"


def promise_document(guarantee: Guarantee) -> dict[str, object]:
    """Return a guarantee as the JSON that tools read: what `promise_facts` says, who is trusted as a list, and all of it exactly.

    Its format is published: `guarantee_schema` has the schema, and `schema` names the version. `exact` is what a release or a
    model carries on disk, which `Guarantee.from_json` reads. An infinite epsilon is a float here and the text "inf" in JSON.

    >>> from labeldp.guarantee import Guarantee
    >>> document = promise_document(Guarantee.pure(1.0))
    >>> document["schema"], document["epsilon"], document["delta"], document["trusted"]
    ('urn:labeldp:schema:guarantee:1', 1.0, 0.0, [])
    >>> document["exact"]["loss"]
    {'kind': 'pure', 'epsilon': 1.0}
    """
    from labeldp.guarantee import Unit

    exact = guarantee.to_json()
    about_label = {"label_delta": cost(guarantee.for_labels()).delta} if guarantee.unit is Unit.PERSON else {}
    facts = {**promise_facts(guarantee), **about_label, "trusted": exact["trust"]}
    return {"schema": SCHEMA_ID, **facts, "exact": exact}


def guarantee_schema() -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of `promise_document`.

    >>> guarantee_schema()["$id"] == SCHEMA_ID
    True
    """
    import json
    from importlib import resources

    text = (resources.files(__package__) / "assets" / "guarantee.schema.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def _label_facts(guarantee: Guarantee) -> dict[str, object]:
    """Return what a promise about persons is for one label; nothing for other promises."""
    from labeldp.guarantee import Unit

    return {"label_epsilon": cost(guarantee.for_labels()).epsilon} if guarantee.unit is Unit.PERSON else {}


def unit_rows(guarantee: Guarantee) -> list[tuple[str, str]]:
    """Return both numbers of a promise about persons, in words: for a person, and for one label. None for others."""
    from labeldp.guarantee import Unit

    if guarantee.unit is not Unit.PERSON:
        return []
    return [
        ("for a person", f"epsilon {cost_text(*cost(guarantee))}, whatever all her labels are"),
        ("for one label", f"epsilon {cost_text(*cost(guarantee.for_labels()))}"),
    ]


def promise_rows(guarantee: Guarantee, *, delta: float = 0.0) -> list[tuple[str, str | None]]:
    """Return a guarantee as names and values, for a table that people read: its parts and assumptions come last.

    One that is not pure is quoted at the `delta` that was asked for, where there was one above 0.

    >>> from labeldp.guarantee import Guarantee
    >>> promise_rows(Guarantee.zcdp(0.01), delta=1e-6)[0]
    ('promise', 'epsilon = 0.621693 at delta = 1e-06 (zCDP), one label replaced; trusts no one')
    """
    from labeldp.guarantee import SHOWN_DELTA, advantage_bound

    shown = delta or SHOWN_DELTA
    epsilon, share = cost(guarantee, delta=shown)
    gain = percent(advantage_bound(epsilon, delta=share), up=True)
    rows: list[tuple[str, str | None]] = [
        ("promise", guarantee.headline_at(shown)),
        *unit_rows(guarantee),
        ("in words", in_words(epsilon, share)),
        ("advantage", f"an attacker gains at most {gain} over a blind guess"),
        ("from whom", from_whom(guarantee)),
    ]
    rows += [("made of", f"{name}: {part.headline_at(shown)}") for name, part in guarantee.parts]
    rows += [("assumes", text) for text in guarantee.assumptions]
    return rows
