"""`labeldp plan`: what an epsilon buys before it is spent, from public numbers alone.

>>> compute_worth(1.0, n_classes=2, prior_accuracies=[0.9]).keep
0.7310585786300049

Randomized response keeps a label with probability E / (E + K - 1), E = e^epsilon. With a prior, RRWithPrior keeps the k
likeliest labels and is right with probability w_k = E / (E + k - 1) (p_1 + ... + p_k), at the best k. The prior that stands
for "its first guess is right with probability A" falls geometrically: p_j proportional to r^j with p_1 = A, the flattest
tail of one shape that is not a special case (with equal tails k would be 1 or K only).

What an answer is worth for training is its information, not how often it is right (`labeldp.mechanisms.informative`): in nats, and
as the number of clean labels that one answer equals where two classes are in doubt. Both are shown for randomized response and for
InformativeResponse, under equally likely classes.

Design notes. These are forecasts in plain floats; the channels of the library round their odds down by a few ulp. numpy is
imported where numbers are made, so that `labeldp --help` does without it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labeldp.cli.given import refuse_idle
from labeldp.cli.screen import AsJson, answer, note, styled
from labeldp.cli.tables import NumberRange, Reading, options_of
from labeldp.errors import Described, invalid
from labeldp.report.words import in_words, percent

if TYPE_CHECKING:
    from rich.console import Console

    from labeldp.accounting.calibration import AssociationBound
    from labeldp.arrays import Float64s


EPSILONS = (0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0)
PRIOR_ACCURACIES = (0.5, 0.9)


def plan(
    table: Annotated[
        Path | None, typer.Argument(help="A table: only its number of rows is used, unless --read-classes.")
    ] = None,
    *,
    classes: Annotated[int | None, typer.Option("--classes", "-k", help="How many classes there are.")] = None,
    epsilon: Annotated[
        list[float] | None, typer.Option("--epsilon", "-e", help="One or more; 0.1 to 8 if left out.")
    ] = None,
    prior_accuracy: Annotated[
        list[float] | None,
        typer.Option("--prior-accuracy", "-a", help="How often a prior's first guess is right, in (0, 1]."),
    ] = None,
    label: Annotated[str | None, typer.Option("--label", "-l", help="The label column.", metavar="COLUMN")] = None,
    read_classes: Annotated[
        bool, typer.Option("--read-classes", help="Owner only: count the classes in the label column itself.")
    ] = False,
    cluster_size: Annotated[
        int | None, typer.Option("--cluster-size", help="Examples per cluster: warns where clusters are too small.")
    ] = None,
    numbers: NumberRange = NumberRange(),
    reading: Reading = Reading(),
    as_json: AsJson = False,
) -> None:
    """Show what an epsilon buys before it is spent.

    The keep probability, the accuracy to expect of the released labels (plain randomized response, and with a prior),
    and the most that anyone can learn about one label; then, for training, the information of an answer and the clean
    labels that it is worth, of randomized response and of sets of classes (what `privatize` releases unless --for labels).

    Of labels that are numbers (--bounds, --counts): how far an answer is from the number, how far the best guess of one number is
    before and after, and from how many answers a mean is known to a hundredth of the range.

    [bold]Examples[/bold]

      labeldp plan --classes 10

      labeldp plan --bounds 0,5000 --epsilon 1 --epsilon 4

      labeldp plan --classes 2 --epsilon 1 --epsilon 2 --prior-accuracy 0.8

      labeldp plan people.parquet --label income --classes 2

      labeldp plan --classes 100 --epsilon 1 --cluster-size 20

      labeldp plan people.parquet --label income --read-classes
    """
    if table is None:
        fix = "It is about a table, and none is given."
        refuse_idle("plan", ["--label", *options_of(Reading)], where="without a table", fix=fix)
    if read_classes:
        fix = "--read-classes counts them in the label column; give one of the two."
        refuse_idle("plan", ["--classes"], where="with --read-classes", fix=fix)
    if numbers.given:
        of_classes = ("--classes", "--read-classes", "--prior-accuracy", "--cluster-size")
        fix = "Numbers have bounds, classes have a number: leave one of the two out."
        refuse_idle("plan", of_classes, where="for labels that are numbers", fix=fix)
        rows = None if table is None else _count_rows(_open(table, label, reading), label)
        _plan_numbers(numbers, epsilon or EPSILONS, rows=rows, as_json=as_json)
        return
    size, rows = _read_shape(table, classes=classes, label=label, read_classes=read_classes, reading=reading)
    sharpness = prior_accuracy or [a for a in PRIOR_ACCURACIES if a * size > 1]
    lines = [compute_worth(e, n_classes=size, prior_accuracies=sharpness) for e in epsilon or EPSILONS]
    facts: dict[str, Any] = {
        "classes": size,
        "rows": rows,
        "classes_read_from_labels": read_classes,
        "plan": [dataclasses.asdict(line) for line in lines],
    }
    bounds = [] if cluster_size is None else _bound_clusters(lines, cluster_size, size)
    if bounds:
        facts["clusters"] = [dataclasses.asdict(bound) | {"too_small": bound.too_small} for bound in bounds]

    def show(console: Console) -> None:
        _show(console, lines, size=size, rows=rows)
        _show_bounds(console, bounds)

    answer(facts, as_json=as_json, show=show)


#: A mean of answers is known well if its standard error is this share of the range.
KNOWN = 0.01


def _plan_numbers(numbers: NumberRange, epsilons: Sequence[float], *, rows: int | None, as_json: bool) -> None:
    """Show what an epsilon buys for numbers: from the channels alone, and no data but how many rows there are."""
    from labeldp.mechanisms import UnbiasedResponse
    from labeldp.mechanisms.numbers import LEVELS, choose_bounds
    from labeldp.release.numbers import say_bounds, say_number
    from labeldp.report.rates import channel_facts

    bounds = choose_bounds("plan", numbers.read_bounds(), numbers.read_counts())
    assert bounds is not None
    grid: int | str = LEVELS if numbers.counts is None else "integers"
    found = [
        (epsilon, channel_facts(UnbiasedResponse(epsilon, bounds=bounds, grid=grid).channel())) for epsilon in epsilons
    ]
    lines = [
        {
            "epsilon": e,
            **one._asdict(),
            "rows_for_a_mean": math.ceil((one.noise / (bounds[1] - bounds[0]) / KNOWN) ** 2),
        }
        for e, one in found
    ]

    def show(console: Console) -> None:
        from rich.table import Table

        shape = f"numbers in [{say_bounds(bounds)}]" + ("" if rows is None else f", {rows:,} rows")
        title = f"What an epsilon buys: {shape}"
        table = Table(title=title, title_justify="left", header_style="bold", padding=(0, 1))
        table.add_column("epsilon", justify="right", style="cyan")
        for name in ("an answer is off by", "best guess off by, before", "after", "rows for a mean to 1% of the range"):
            table.add_column(name, justify="right")
        for line in lines:
            off = [say_number(line[name]) for name in ("noise", "off_before", "off_after")]
            table.add_row(f"{line['epsilon']:g}", *off, f"{line['rows_for_a_mean']:,}")
        console.print(table)
        told = "Levels are taken to be equally likely. Off by: in the root mean square; of guesses, on average."
        console.print(styled((told, "dim")))

    answer({"bounds": list(bounds), "rows": rows, "plan": lines}, as_json=as_json, show=show)


def _bound_clusters(lines: list[Worth], cluster_size: int, n_classes: int) -> list[AssociationBound]:
    """Return what clusters of this size can tell about their labels, at each epsilon."""
    from labeldp.accounting.calibration import label_association

    return [label_association(line.epsilon, cluster_size=cluster_size, n_classes=n_classes) for line in lines]


def _show_bounds(console: Console, bounds: list[AssociationBound]) -> None:
    """Say the bound at the epsilon closest to 1, and warn where most of what is named must be wrong."""
    if not bounds:
        return
    from labeldp.accounting.calibration import least_cluster_size

    bound = min(bounds, key=lambda one: abs(one.epsilon - 1.0))
    console.print(bound.sentence)
    if bound.too_small:
        least = least_cluster_size(bound.epsilon, n_classes=bound.n_classes)
        told = (
            f" clusters of {bound.cluster_size} are too small for {bound.n_classes} classes at epsilon "
            f"{bound.epsilon:g}: use at least {least} examples each."
        )
        console.print(styled(("warning:", "yellow"), told))


def _read_shape(
    table: Path | None, *, classes: int | None, label: str | None, read_classes: bool, reading: Reading
) -> tuple[int, int | None]:
    """Return the number of classes and of rows; labels are looked at only when their owner says so."""
    if read_classes and (table is None or label is None):
        raise invalid("plan", "--read-classes", "come with a table and --label", got=Described("one missing"))
    source = None if table is None else _open(table, label, reading, settle=read_classes)
    if read_classes and source is not None and label is not None:
        from labeldp.data import check_label, label_profile

        note("reading the classes off the labels is a look at the labels, for their owner only.")
        profile = label_profile(source, label)
        return len(check_label(profile, missing="drop")), profile.rows
    if classes is None:
        fix = "Reading it off the labels would be a look at the labels; their owner may ask for it with --read-classes."
        raise invalid("plan", "--classes", "say how many classes there are", got=Described("nothing"), fix=fix)
    return classes, None if source is None else _count_rows(source, label)


def _open(table: Path, label: str | None, reading: Reading, *, settle: bool = False) -> Any:
    """Return the table, which has the label column if one is named."""
    source = reading.open(table, settle=settle)
    if label is not None:
        source.require(label)
    return source


def _count_rows(source: Any, label: str | None) -> int:
    """Return the number of rows; where the file does not say, one column that is not the label is read."""
    if source.rows is not None:
        return int(source.rows)
    others = [name for name in source.names if name != label] or list(source.names)
    return sum(batch.num_rows for batch in source.batches(columns=others[:1]))


def _show(console: Console, lines: list[Worth], *, size: int, rows: int | None) -> None:
    from rich.table import Table

    shape = f"{size} classes" + ("" if rows is None else f", {rows:,} rows")
    table = Table(title=f"What an epsilon buys: {shape}", title_justify="left", header_style="bold", padding=(0, 1))
    table.add_column("epsilon", justify="right", style="cyan")
    table.add_column("labels right, no prior", justify="right")
    for prior in lines[0].with_prior:
        table.add_column(f"with a prior {percent(prior.prior_accuracy)} right", justify="right")
    table.add_column("attacker: 50% guess becomes", justify="right")
    table.add_column("advantage", justify="right")
    for line in lines:
        informed = [f"{percent(p.label_accuracy)}{'*' if p.candidates == 1 else ''}" for p in line.with_prior]
        risk = [percent(line.best_guess, up=True), percent(line.advantage, up=True)]
        table.add_row(f"{line.epsilon:g}", percent(line.keep), *informed, *risk)
    console.print(table)
    _show_training(console, lines, rows=rows)
    _explain(console, lines, size=size, rows=rows)


def _show_training(console: Console, lines: list[Worth], *, rows: int | None) -> None:
    """Show what answers are worth to a learner."""
    from rich.table import Table

    told = [line for line in lines if line.training is not None]
    if not told:
        return
    table = Table(
        title="For training: what one answer is worth", title_justify="left", header_style="bold", padding=(0, 1)
    )
    table.add_column("epsilon", justify="right", style="cyan")
    for name in ("randomized response, nats", "sets of labels, nats", "the most there is"):
        table.add_column(name, justify="right")
    unit = "clean labels" if rows is None else f"{rows:,} rows as clean labels"
    table.add_column(f"{unit}, response", justify="right")
    table.add_column("sets", justify="right")
    for line in told:
        one = line.training
        assert one is not None
        worth = [one.response_clean_labels, one.informative_clean_labels]
        clean = [f"{w:.4f}" if rows is None else f"{round(w * rows):,}" for w in worth]
        nats = [one.response_information, one.informative_information, one.most_information]
        table.add_row(f"{line.epsilon:g}", *(f"{value:.4f}" for value in nats), *clean)
    console.print(table)


def _explain(console: Console, lines: list[Worth], *, size: int, rows: int | None) -> None:
    """Say in words what the table says in numbers."""
    if any(p.candidates == 1 for line in lines for p in line.with_prior):
        told = "* the prior's own guess: at this epsilon the label itself adds nothing to it."
        console.print(styled((told, "dim")))
    line = min(lines, key=lambda one: abs(one.epsilon - 1.0))
    console.print(f"At epsilon {line.epsilon:g} {in_words(line.epsilon)}.")
    if rows is not None:
        wrong = round(rows * (1.0 - line.keep))
        console.print(f"Of {rows:,} labels about {wrong:,} would be released as another class, without a prior.")
    blind = f"A blind guess among {size} classes is right {percent(1 / size)} of the time."
    console.print(styled((blind, "dim")))


#: Most classes for which a prior is laid out.
MOST_CLASSES = 1_000_000


@dataclass(frozen=True, kw_only=True)
class WithPrior:
    """Expected label accuracy of RRWithPrior when the prior's first guess is right this often; k labels are kept."""

    prior_accuracy: float
    label_accuracy: float
    candidates: int


@dataclass(frozen=True, kw_only=True)
class Worth:
    """One line of a plan. `keep` is Pr[released = true] of plain randomized response."""

    epsilon: float
    keep: float
    advantage: float
    best_guess: float
    with_prior: tuple[WithPrior, ...]
    training: Training | None = None


@dataclass(frozen=True, kw_only=True)
class Training:
    """What one answer is worth to a learner, under equally likely classes: nats of information, and clean labels.

    `response` is randomized response, `informative` is InformativeResponse without a prior; `most_information` is what no
    private answer exceeds, whatever the prior, and no more than the label itself has: ln K.
    """

    response_information: float
    informative_information: float
    most_information: float
    response_clean_labels: float
    informative_clean_labels: float


def compute_worth(epsilon: float, *, n_classes: int, prior_accuracies: Sequence[float]) -> Worth:
    """Return what one epsilon buys with this many classes, alone and with priors whose first guess is this accurate."""
    import numpy as np

    from labeldp.guarantee import advantage_bound, best_guess
    from labeldp.validate import check_epsilon, check_integer

    budget = check_epsilon("plan", epsilon)
    size = check_integer("plan", "classes", n_classes, least=2, most=MOST_CLASSES)
    rows = tuple(_compute_with_prior(budget, accuracy, size) for accuracy in prior_accuracies)
    return Worth(
        epsilon=budget,
        keep=float(keep_probability(budget, np.asarray([size]))[0]),
        advantage=advantage_bound(budget),
        best_guess=best_guess(budget),
        with_prior=rows,
        training=_compute_training(budget, size),
    )


def _compute_training(epsilon: float, n_classes: int) -> Training | None:
    """Return what answers are worth to a learner; None for more classes than an answer can be a set of."""
    from labeldp.channel.sets import MOST_CLASSES as MOST_LABELS
    from labeldp.mechanisms.informative import most_information, subset_worth

    if n_classes > MOST_LABELS or not math.isfinite(epsilon):
        return None
    plain, sets = subset_worth(epsilon, n_classes=n_classes, size=1), subset_worth(epsilon, n_classes=n_classes)
    return Training(
        response_information=plain.information,
        informative_information=sets.information,
        most_information=min(most_information(epsilon), math.log(n_classes)),
        response_clean_labels=plain.clean_labels,
        informative_clean_labels=sets.clean_labels,
    )


def keep_probability(epsilon: float, sizes: Any) -> Float64s:
    """Return E / (E + k - 1) for each k, as 1 / (1 + (k - 1) e^-epsilon): no overflow."""
    import numpy as np

    return np.asarray(1.0 / (1.0 + (sizes - 1) * math.exp(-epsilon)), np.float64)


def falling_prior(accuracy: float, n_classes: int) -> Float64s:
    """Return probabilities p_j ~ r^j whose first is `accuracy`; r is found by halving.

    >>> falling_prior(0.5, 3).round(4).tolist()
    [0.5, 0.309, 0.191]
    """
    import numpy as np

    if not 1.0 / n_classes <= accuracy <= 1.0:
        fix = "A blind guess is right that often already."
        must = f"be in [1/{n_classes}, 1]"
        raise invalid("plan", "prior accuracy", must, got=accuracy, fix=fix)
    powers = np.arange(n_classes)
    low, high = 0.0, 1.0
    for _ in range(60):  # below the spacing of doubles
        middle = (low + high) / 2
        low, high = (middle, high) if 1.0 / (middle**powers).sum() > accuracy else (low, middle)
    shape = high**powers
    answer: Float64s = shape / shape.sum()
    return answer


def _compute_with_prior(epsilon: float, accuracy: float, n_classes: int) -> WithPrior:
    """Return the best number of candidates for a falling prior, and how many labels are then right."""
    import numpy as np

    prior = falling_prior(accuracy, n_classes)
    right = keep_probability(epsilon, np.arange(1, n_classes + 1)) * np.cumsum(prior)
    best = int(np.argmax(right)) if math.isfinite(epsilon) else n_classes - 1
    return WithPrior(prior_accuracy=accuracy, label_accuracy=float(min(right[best], 1.0)), candidates=best + 1)
