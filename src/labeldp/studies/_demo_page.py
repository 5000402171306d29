"""How the demo is shown: a table for the terminal and a page with plots.

>>> percent_up(0.46211), percent_up(1.0)
('46.3%', '100%')
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.table import Table as RichTable

from labeldp._advantage import advantage_bound, best_guess
from labeldp.data import load
from labeldp.report import Facts, Lines, Section, Series, Table, page
from labeldp.studies._facts import versions
from labeldp.studies.demo import NO_PRIVACY, DemoRow

PUBLIC_TEST = "Accuracy is on test labels declared public. All columns but the last train on released labels alone."


def percent_up(share: float) -> str:
    """Return a privacy number in percent with one digit, rounded up."""
    return f"{math.ceil(1000 * share - 1e-9) / 10:g}%"


def demo_table(rows: Sequence[DemoRow]) -> RichTable:
    """Return the demo as one table for a terminal of 80 columns: a row per method, a column per epsilon."""
    epsilons = _epsilons(rows)
    table = RichTable(
        title="Test accuracy (%) of a linear model, by how its labels were released",
        title_justify="left",
        caption=PUBLIC_TEST,
        caption_justify="left",
        header_style="bold",
    )
    table.add_column("total epsilon")
    table.add_column("trusts")
    for epsilon in epsilons:
        table.add_column("none" if math.isinf(epsilon) else f"{epsilon:g}", justify="right")
    for dataset in dict.fromkeys(row.dataset for row in rows):
        table.add_row(f"[bold]{dataset}[/bold]", *[""] * (len(epsilons) + 1))
        for method, cells in _matrix(rows, dataset, epsilons).items():
            table.add_row(method, cells[0], *cells[1:])
        table.add_section()
    table.add_row("[bold]one label, at most[/bold]", *[""] * (len(epsilons) + 1))
    table.add_row("attacker's advantage", "", *(percent_up(advantage_bound(epsilon)) for epsilon in epsilons))
    table.add_row("a 50% guess becomes", "", *(percent_up(best_guess(epsilon)) for epsilon in epsilons))
    return table


def _epsilons(rows: Sequence[DemoRow]) -> list[float]:
    # A composed guarantee may carry an epsilon one rounding below the one asked for: one column for both.
    return sorted({_asked(row.epsilon) for row in rows})


def _asked(epsilon: float) -> float:
    return epsilon if math.isinf(epsilon) else round(epsilon, 6)


def _matrix(rows: Sequence[DemoRow], dataset: str, epsilons: Sequence[float]) -> dict[str, list[str]]:
    """Return trust and accuracies for each method; the accuracy without privacy stands in every row's last cell."""
    mine = [row for row in rows if row.dataset == dataset]
    open_row = next(row for row in mine if row.method == NO_PRIVACY)
    answer: dict[str, list[str]] = {}
    for method in dict.fromkeys(row.method for row in mine if row.method != NO_PRIVACY):
        found = {_asked(row.epsilon): row for row in mine if row.method == method}
        cells = [f"{found[e].accuracy:.1f}" if e in found else "" for e in epsilons if not math.isinf(e)]
        answer[method] = [next(iter(found.values())).trust, *cells, f"{open_row.accuracy:.1f}"]
    return answer


def demo_page(rows: Sequence[DemoRow]) -> str:
    """Return the report of the demo."""
    lead = (
        "One linear model, two data sets, three ways to release the training labels, and what anybody could learn about "
        "one label."
    )
    parts = [_promise(rows)]
    parts += [_dataset(rows, dataset) for dataset in dict.fromkeys(row.dataset for row in rows)]
    parts += [_reading(rows), _making()]
    return page("What does label privacy cost, and what does it buy?", sections=parts, lead=lead)


def _promise(rows: Sequence[DemoRow]) -> Section:
    epsilons = _epsilons(rows)
    table = Table(
        caption="What a neighbour could learn about one label",
        columns=("total epsilon", "attacker's best advantage, at most", "a guess that was 50% right becomes, at most"),
        rows=tuple(
            ("no privacy" if math.isinf(e) else f"{e:g}", percent_up(advantage_bound(e)), percent_up(best_guess(e)))
            for e in epsilons
        ),
        numeric=(1, 2),
    )
    finite = tuple(epsilon for epsilon in epsilons if not math.isinf(epsilon))
    guesses = tuple(100 * best_guess(epsilon) for epsilon in finite)
    plot = Lines(
        title="How right a 50% guess can become",
        series=(Series(name="at most", x=finite, y=guesses),),
        x_title="total epsilon",
        y_title="right, %",
        alt="; ".join(f"{g:.0f}% at epsilon {e:g}" for e, g in zip(finite, guesses, strict=True)),
        x_log=True,
        references=(("before the release", 50.0), ("no privacy", 100.0)),
    )
    words = (
        "Suppose a neighbour knows everything about you and all other labels, and hesitates between two values of yours. "
        "Whatever she computes from what was released, her guess can improve by no more than this. The features are not "
        "protected: if they tell your label to anyone, label privacy does not change that."
    )
    return Section(title="What it buys", blocks=(words, table, plot))


def _dataset(rows: Sequence[DemoRow], dataset: str) -> Section:
    data = load(dataset)
    mine = [row for row in rows if row.dataset == dataset]
    open_row = next(row for row in mine if row.method == NO_PRIVACY)
    series = []
    for method in dict.fromkeys(row.method for row in mine if row.method != NO_PRIVACY):
        found = [row for row in mine if row.method == method]
        x, y = tuple(_asked(row.epsilon) for row in found), tuple(row.accuracy for row in found)
        series.append(Series(name=f"{method} (trusts {found[0].trust})", x=x, y=y))
    counts = np_share(data.y_test)
    plot = Lines(
        title=f"{dataset}: test accuracy against epsilon",
        series=tuple(series),
        x_title="total epsilon",
        y_title="test accuracy, %",
        alt="; ".join(f"{s.name} from {s.y[0]:.0f}% to {s.y[-1]:.0f}%" for s in series),
        x_log=True,
        references=((NO_PRIVACY, open_row.accuracy), ("always the commonest class", counts)),
    )
    epsilons = _epsilons(rows)
    names = tuple("no privacy" if math.isinf(e) else f"epsilon {e:g}" for e in epsilons)
    table = Table(
        caption=f"{dataset}: test accuracy, %",
        columns=("labels released by", "trusts", *names),
        rows=tuple((method, *cells) for method, cells in _matrix(rows, dataset, epsilons).items()),
        numeric=tuple(range(2, 2 + len(names))),
    )
    error = 100 * math.sqrt(0.25 / len(data.y_test))
    words = (
        f"{len(data.y_train):,} training labels of {data.n_classes} classes; protected: {data.sensitive_label}. "
        f"{len(data.y_test):,} test labels, declared public: chance alone moves an accuracy by up to {error:.1f} points "
        f"(one standard error). {data.citation}"
    )
    return Section(title=f"What it costs: {dataset}", blocks=(words, plot, table))


def np_share(y: object) -> float:
    """Return the share of the commonest class, in percent."""
    import numpy as np

    counts = np.bincount(np.asarray(y))
    return 100.0 * float(counts.max() / counts.sum())


def _reading(rows: Sequence[DemoRow]) -> Section:
    dataset = rows[0].dataset
    spent = sum(_asked(row.epsilon) for row in rows if row.dataset == dataset and not math.isinf(row.epsilon))
    return Section(
        title="How to read it",
        blocks=(
            (
                "Randomized response: each label is kept or replaced at random before anyone sees it. Two stages: most labels "
                "are released so; a model trained on them says which labels are likely for the rest, which are then randomized "
                "among the likely ones only. Neither needs anyone's trust."
            ),
            (
                "Cluster prior: the features are clustered, a curator who sees the labels publishes a noisy histogram per "
                "cluster, and the labels are then randomized among the likely ones with the rest of the budget. At the same "
                "epsilon this is a weaker promise, because the curator must be trusted."
            ),
            "All three are trained with the forward correction, which knows how the labels were randomized.",
            (
                "The noise was secure and unseeded: run it again and the numbers move a little. Each cell is one release and is "
                f"private as stated. All releases of one data set together would cost epsilon {spent:g}, since they protect "
                "the same labels; and the row without privacy protects nothing. Bundled data are public anyway: on your own, "
                "choose one release."
            ),
        ),
    )


def _making() -> Section:
    pairs = (("command", "labeldp demo"), *versions().items())
    return Section(title="How it was made", blocks=(Facts(pairs=pairs),))
