"""The demo: what label privacy costs and what it buys, on bundled data, in under a minute.

For two data sets and four epsilons, `run_demo` does what a user does: she says her budget and whom she trusts
(`LabelPrivateClassifier(model, epsilon=..., trust=...)`), and leaves the rest to the recipe. Beside it stand the same
model on plainly randomized labels, the best constant, and no privacy at all. `demo_table` shows the rows on a terminal,
`demo_page` as a report, with what anybody could learn about one label from what was released.

>>> EPSILONS
(0.5, 1.0, 2.0, 4.0)
>>> CHOSEN["adult"][0.5], CHOSEN["adult"][4.0]
('splines', 'boosting')

Design notes. The noise is secure, never seeded, so that numbers differ a little from run to run and each release is
private as it stands. Test labels are declared public; training labels are not looked at, except by the rows without
privacy and by the constant. Which model serves at which epsilon (`CHOSEN`) was found on training rows alone, by
scripts/choose_demo.py; on labels of your own `labeldp.learn.PrivateSearchCV` finds it within the budget. Features are
prepared once: nothing there sees a label. Each cell is a release of its own: publishing several of the same labels adds
up their epsilons, and the page says what all of them together would cost. Linear algebra runs in one thread: the products
are small, and on a busy machine two threads that wait for each other were forty times slower than one.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.table import Table as RichTable
from rich.text import Text
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.manifold import Isomap
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, SplineTransformer, StandardScaler
from threadpoolctl import threadpool_limits

from labeldp.data import Dataset, load
from labeldp.guarantee import Guarantee, advantage_bound, best_guess
from labeldp.learn import LabelPrivateClassifier, SoftmaxRegression
from labeldp.learn.recipe import CURATOR, NO_ONE, recipe
from labeldp.mechanisms import RandomizedResponse
from labeldp.report import Facts, Lines, Section, Series, Table, page, write_page
from labeldp.report.page import versions
from labeldp.report.words import from_whom, in_words, percent

EPSILONS = (0.5, 1.0, 2.0, 4.0)
SETS = ("digits", "adult")
REPORT = "labeldp-demo-report.html"
NO_PRIVACY, CONSTANT, PLAIN = "no privacy", "a constant", "plain response"
#: The line of a table that holds both of the first two.
UNSPENT = "no epsilon"
#: Stands where a curator has nothing to count, so that her call is that of no one's trust.
SAME = "same"
#: What the rows of a user's two calls are called: she says whom she trusts, and nothing else.
AUTO = {NO_ONE: "auto, trust no one", CURATOR: "auto, trust a curator"}
#: The epsilon whose promise is spelled out in words.
EXPLAINED = 1.0
#: The model for each data set and epsilon; infinity is no privacy. `python scripts/choose_demo.py` compares them.
CHOSEN = {
    "digits": {0.5: "manifold", 1.0: "manifold", 2.0: "manifold", 4.0: "manifold", math.inf: "manifold"},
    "adult": {0.5: "splines", 1.0: "splines", 2.0: "boosting", 4.0: "boosting", math.inf: "boosting"},
}
#: What the names of models mean.
MODEL_WORDS = {
    "pixels": "softmax regression on the pixels",
    "manifold": "softmax regression on ten Isomap coordinates of the images",
    "linear": "softmax regression on scaled numbers and categories",
    "splines": "softmax regression on categories and splines of numbers",
    "boosting": "gradient boosting (HistGradientBoostingClassifier) on the columns as they are",
}
PUBLIC_TEST = "Scores are on test labels declared public. Lower log loss is better."

#: Called with the share done, in [0, 1], and what is being done.
Progress = Callable[[float, str], None]


class Scores(NamedTuple):
    """How well a model predicts test labels: accuracy in percent, log loss in nats, area under the ROC curve."""

    accuracy: float
    log_loss: float
    auc: float


@dataclass(frozen=True, kw_only=True)
class DemoRow:
    """One release and its model.

    `epsilon` is the true total, `trust` whom the guarantee trusts, `model` a key of `MODEL_WORDS`, `how` what the recipe
    did and `promise` the guarantee in words. `advantage` and `guess` are shares: the attacker's best advantage, and how
    right a guess that was 50% right can become.
    """

    dataset: str
    method: str
    model: str
    epsilon: float
    trust: str
    how: str
    promise: str
    accuracy: float
    log_loss: float
    auc: float
    advantage: float
    guess: float


class DemoResult(NamedTuple):
    """What the demo found, and where its report is."""

    rows: tuple[DemoRow, ...]
    html_path: Path


def run_demo(*, progress: Progress | None = None, out_dir: str | os.PathLike[str] | None = None) -> DemoResult:
    """Run the demo and write `labeldp-demo-report.html` into `out_dir` (the current directory unless given).

    An older report of that name is replaced: it is ours. `progress` is called with the share done and what is being done.
    """
    tell: Progress = progress or (lambda *_: None)
    # The report at the end counts as a fifth of a data set.
    whole = len(SETS) + 0.2
    rows: list[DemoRow] = []
    for done, name in enumerate(SETS):

        def tell_share(share: float, doing: str, before: int = done) -> None:
            tell((before + share) / whole, doing)

        with threadpool_limits(limits=1):
            rows += measure_dataset(load(name), tell_share)
    tell(len(SETS) / whole, "writing the report")
    path = write_page(Path(out_dir or ".") / REPORT, demo_page(rows))
    tell(1.0, "done")
    return DemoResult(tuple(rows), path.resolve())


# ------------------------------------------------------------------------------------------------------ the releases


def measure_dataset(data: Dataset, tell: Progress) -> list[DemoRow]:
    """Return the rows of one data set: a constant, no privacy, then each way at each epsilon."""
    tell(0.0, f"{data.name}: {NO_PRIVACY}")
    chosen = CHOSEN[data.name]
    tables = {model: prepare(data, model) for model in {chosen[epsilon] for epsilon in (*EPSILONS, math.inf)}}
    shares = np.bincount(data.y_train, minlength=data.n_classes) / len(data.y_train)
    constant = np.broadcast_to(shares, (len(data.y_test), data.n_classes))
    train, test = tables[chosen[math.inf]]
    plain = make_model(chosen[math.inf]).fit(train, data.y_train)
    rows = [
        _open_row(data.name, CONSTANT, "the shares of classes", score(data, constant)),
        _open_row(data.name, NO_PRIVACY, chosen[math.inf], score(data, plain.predict_proba(test))),
    ]
    steps = [(epsilon, method) for epsilon in EPSILONS for method in methods(data, epsilon)]
    for number, (epsilon, method) in enumerate(steps):
        tell(0.1 + 0.9 * number / len(steps), f"{data.name}: {method}, epsilon {epsilon:g}")
        train, test = tables[chosen[epsilon]]
        private = make_classifier(data, method, epsilon).fit(train, data.y_train)
        scores = score(data, private.predict_proba(test))
        rows.append(_private_row(data.name, method, chosen[epsilon], private, scores))
    return rows


def methods(data: Dataset, epsilon: float) -> list[str]:
    """Return the ways to train at one epsilon; a curator for whom the recipe has no work is left out."""
    sizes: dict[str, Any] = {"n_examples": len(data.y_train), "n_classes": data.n_classes}
    model = make_model(CHOSEN[data.name][epsilon])
    plans = [recipe(epsilon, trust=trust, estimator=model, **sizes) for trust in (NO_ONE, CURATOR)]
    return [PLAIN, AUTO[NO_ONE], *([] if plans[0] == plans[1] else [AUTO[CURATOR]])]


def make_classifier(data: Dataset, method: str, epsilon: float) -> LabelPrivateClassifier:
    """Return the learner of one cell.

    The plain way flips labels by randomized response and trains on them as if they were true. The other two are what a
    user writes: her budget, and whom she trusts.
    """
    model = make_model(CHOSEN[data.name][epsilon])
    classes = range(data.n_classes)
    if method == PLAIN:
        plainly: dict[str, Any] = {"stages": 1, "prior": None, "correction": "none"}
        plainly["mechanism"] = RandomizedResponse(epsilon, n_classes=data.n_classes)
        return LabelPrivateClassifier(model, epsilon=epsilon, classes=classes, **plainly)
    trust = next(trust for trust, name in AUTO.items() if name == method)
    return LabelPrivateClassifier(model, epsilon=epsilon, trust=trust, classes=classes)


def make_model(name: str) -> Any:
    """Return an unfitted model that `prepare` has the features for."""
    if name != "boosting":
        return SoftmaxRegression(max_iter=500, tol=1e-4)
    # Small trees and large leaves: labels are noisy, and fits are many.
    return HistGradientBoostingClassifier(
        max_iter=60, max_leaf_nodes=8, learning_rate=0.15, min_samples_leaf=100, early_stopping=False, random_state=0
    )


def prepare(data: Dataset, model: str) -> tuple[Any, Any]:
    """Return train and test features for a model. Nothing here sees a label, so it costs no privacy."""
    if model in ("pixels", "linear"):
        return data.matrix()
    if model == "manifold":
        train, test = data.matrix()
        steps = make_pipeline(Isomap(n_neighbors=8, n_components=10), StandardScaler())
        return steps.fit_transform(train), steps.transform(test)
    train, test, numbers = _stack_columns(data)
    if model == "boosting":
        return train, test
    column = {name: place for place, name in enumerate(numbers)}
    tails = make_pipeline(FunctionTransformer(np.log1p), StandardScaler(), SplineTransformer(8, knots="uniform"))
    encode = make_column_transformer(
        (StandardScaler(), list(column.values())),
        (SplineTransformer(8, knots="quantile"), [column["age"], column["hours-per-week"]]),
        (tails, [column["capital-gain"], column["capital-loss"]]),
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), list(range(len(numbers), train.shape[1]))),
    )
    return encode.fit_transform(train).astype(np.float32), encode.transform(test).astype(np.float32)


def _stack_columns(data: Dataset) -> tuple[Any, Any, list[str]]:
    """Return the columns of a table as numbers, the numeric ones first, with their names; categories are numbered."""
    numbers = [name for name in data.feature_names if name not in data.categorical]
    parts = []
    values = {name: pa.array(sorted(set(data.X_train[name].to_pylist()))) for name in data.categorical}
    for table in (data.X_train, data.X_test):
        columns = [table[name].to_numpy().astype(np.float64) for name in numbers]
        for name in data.categorical:
            found = pc.index_in(table[name].cast(pa.string()), value_set=values[name])
            columns.append(pc.fill_null(found, -1).to_numpy().astype(np.float64))
        parts.append(np.column_stack(columns))
    return parts[0], parts[1], numbers


def score(data: Dataset, probabilities: Any) -> Scores:
    """Return how well predicted probabilities do on the test labels; with more than two classes AUC is one against the rest."""
    found = np.asarray(probabilities, dtype=np.float64)
    found = found / found.sum(axis=1, keepdims=True)  # float32 rows sum to one only so far
    truth = data.y_test
    area = roc_auc_score(truth, found[:, 1] if data.n_classes == 2 else found, multi_class="ovr")
    accuracy = 100.0 * accuracy_score(truth, found.argmax(axis=1))
    return Scores(accuracy, log_loss(truth, found, labels=range(data.n_classes)), float(area))


def _open_row(dataset: str, method: str, model: str, scores: Scores) -> DemoRow:
    """Return a row that protects nothing."""
    return DemoRow(
        dataset=dataset,
        method=method,
        model=model,
        epsilon=math.inf,
        trust="everyone",
        how="reads the labels",
        promise="nothing is hidden",
        advantage=1.0,
        guess=1.0,
        **scores._asdict(),
    )


def _private_row(dataset: str, method: str, model: str, fitted: LabelPrivateClassifier, scores: Scores) -> DemoRow:
    """Return a row with what its epsilon lets an attacker do, rounded up."""
    promise: Guarantee = fitted.guarantee_
    epsilon = promise.epsilon()
    return DemoRow(
        dataset=dataset,
        method=method,
        model=model,
        epsilon=epsilon,
        trust=promise.trust.words,
        how=_say_recipe(method, fitted),
        promise=f"{promise}\n  in words: {in_words(epsilon)}\n  from whom: {from_whom(promise)}",
        advantage=advantage_bound(epsilon),
        guess=best_guess(epsilon),
        **scores._asdict(),
    )


def _say_recipe(method: str, fitted: LabelPrivateClassifier) -> str:
    """Return in words what was done for a budget."""
    if method == PLAIN:
        return "every label flipped at random, and taken as it is"
    asked = len(fitted.shares_)
    if not asked:
        return "labels counted in clusters with noise; no label answered"
    counted = "" if fitted.prior_.startswith("UniformPrior") else "labels counted in clusters with noise, then "
    return f"{counted}every label answered once{'' if asked == 1 else ', a quarter of them first'}"


# ------------------------------------------------------------------------------------------------------- the screen


def demo_table(rows: Sequence[DemoRow]) -> RichTable:
    """Return the demo as one table for a terminal of 80 columns: a row per measure and way, a column per epsilon."""
    epsilons = _epsilons(rows)
    table = RichTable(
        title="What labels cost in quality, by the epsilon that their owners spend",
        title_justify="left",
        caption=PUBLIC_TEST,
        caption_justify="left",
        header_style="bold",
    )
    table.add_column("total epsilon")
    for name in ("constant", *(f"{epsilon:g}" for epsilon in epsilons), "none"):
        table.add_column(name, justify="right")
    for dataset in dict.fromkeys(row.dataset for row in rows):
        for measure, name in (("accuracy", "accuracy, %"), ("log_loss", "log loss")):
            cells = _cells(rows, dataset, measure, epsilons)
            for number, (method, shown) in enumerate(cells.items()):
                title = Text(f"{dataset}: {name}", style="bold") if number == 0 else f" {method}"
                table.add_row(title, *shown)
        table.add_section()
    table.add_row(Text("one label, at most", style="bold"), *[""] * (len(epsilons) + 2))
    table.add_row(" attacker's advantage", "", *(percent(advantage_bound(e), up=True) for e in (*epsilons, math.inf)))
    table.add_row(" a 50% guess becomes", "", *(percent(best_guess(e), up=True) for e in (*epsilons, math.inf)))
    return table


def demo_words(rows: Sequence[DemoRow]) -> list[str]:
    """Return the sentences below the table: what epsilon 1 promises, and to whom."""
    lines = [f"Epsilon {EXPLAINED:g} in words: {in_words(EXPLAINED)}."]
    lines += [f"{name}: {words}" for name, words in _whom(rows).items()]
    counted = [row for row in rows if row.method == AUTO[CURATOR]]
    if len(counted) < len({row.dataset for row in counted}) * len(_epsilons(rows)):
        lines.append(f'"{SAME}": from there on answers teach as much, so that the curator has nothing to count either.')
    idle = _idle_curators(rows)
    if idle:
        lines.append(f"{' and '.join(idle)}: answers teach enough, so that a curator would have nothing to count.")
    return lines


def _whom(rows: Sequence[DemoRow]) -> dict[str, str]:
    """Return from whom each of the two calls protects labels, in the words of a guarantee that it gave."""
    found = {row.method: row.promise.rpartition("from whom: ")[2] for row in rows if row.method in AUTO.values()}
    return {f'trust="{trust}"': found[name] for trust, name in AUTO.items() if name in found}


def _idle_curators(rows: Sequence[DemoRow]) -> list[str]:
    """Return the data sets on which the recipe had nothing for a curator to do at any epsilon."""
    served = {row.dataset for row in rows if row.method == AUTO[CURATOR]}
    return [dataset for dataset in dict.fromkeys(row.dataset for row in rows) if dataset not in served]


def _epsilons(rows: Sequence[DemoRow]) -> list[float]:
    """Return the epsilons that occur, in order, without infinity."""
    return sorted({_round_epsilon(row.epsilon) for row in rows if math.isfinite(row.epsilon)})


def _round_epsilon(epsilon: float) -> float:
    """Return the epsilon that was asked for; a composed guarantee may carry one that is a rounding below it."""
    return round(epsilon, 6)


def _cells(rows: Sequence[DemoRow], dataset: str, measure: str, epsilons: Sequence[float]) -> dict[str, list[str]]:
    """Return the texts of a measure: what needs no epsilon (constant and no privacy) first, then a line for each way."""
    mine = [row for row in rows if row.dataset == dataset]

    def show(row: DemoRow) -> str:
        return f"{getattr(row, measure):.{1 if measure == 'accuracy' else 3}f}"

    answer = {UNSPENT: [show(_find(mine, CONSTANT)), *("" for _ in epsilons), show(_find(mine, NO_PRIVACY))]}
    for method in dict.fromkeys(row.method for row in mine if math.isfinite(row.epsilon)):
        found = {_round_epsilon(row.epsilon): row for row in mine if row.method == method}
        blank = SAME if method == AUTO[CURATOR] else ""
        answer[method] = ["", *(show(found[epsilon]) if epsilon in found else blank for epsilon in epsilons), ""]
    return answer


def _find(rows: Sequence[DemoRow], method: str) -> DemoRow:
    return next(row for row in rows if row.method == method)


# --------------------------------------------------------------------------------------------------------- the page


def demo_page(rows: Sequence[DemoRow]) -> str:
    """Return the report of the demo."""
    lead = (
        "Two data sets, four budgets, and one call: you say what the labels may cost and whom their owners trust. How good "
        "is the model, and what could anybody learn about one label?"
    )
    parts = [_promise_section(rows)]
    parts += [_dataset_section(rows, dataset) for dataset in dict.fromkeys(row.dataset for row in rows)]
    parts += [_reading_section(rows), _versions_section()]
    return page("What does label privacy cost, and what does it buy?", sections=parts, lead=lead)


def _promise_section(rows: Sequence[DemoRow]) -> Section:
    epsilons = _epsilons(rows)
    table = Table(
        caption="What a neighbour could learn about one label",
        columns=("total epsilon", "attacker's best advantage, at most", "a guess that was 50% right becomes, at most"),
        rows=tuple(
            (
                NO_PRIVACY if math.isinf(e) else f"{e:g}",
                percent(advantage_bound(e), up=True),
                percent(best_guess(e), up=True),
            )
            for e in (*epsilons, math.inf)
        ),
        numeric=(1, 2),
    )
    guesses = tuple(100 * best_guess(epsilon) for epsilon in epsilons)
    plot = Lines(
        title="How right a 50% guess can become",
        series=(Series(name="at most", x=tuple(epsilons), y=guesses),),
        x_title="total epsilon",
        y_title="right, %",
        alt="; ".join(f"{g:.0f}% at epsilon {e:g}" for e, g in zip(epsilons, guesses, strict=True)),
        x_log=True,
        references=(("before the release", 50.0), (NO_PRIVACY, 100.0)),
    )
    words = (
        "Suppose a neighbour knows everything about you and all other labels, and hesitates between two values of yours. "
        "Whatever she computes from what was released, her guess can improve by no more than this. The features are not "
        "protected: if they tell your label to anyone, label privacy does not change that."
    )
    whom = Facts(pairs=tuple(_whom(rows).items()))
    return Section(title="What it buys", blocks=(words, table, plot, "From whom a label is protected:", whom))


def _dataset_section(rows: Sequence[DemoRow], dataset: str) -> Section:
    data = load(dataset)
    mine = [row for row in rows if row.dataset == dataset]
    epsilons = _epsilons(rows)
    names = (CONSTANT, *(f"epsilon {e:g}" for e in epsilons), NO_PRIVACY)
    tables = tuple(
        Table(
            caption=f"{dataset}: {title}",
            columns=("labels released by", *names),
            rows=tuple((method, *cells) for method, cells in _cells(rows, dataset, measure, epsilons).items()),
            numeric=tuple(range(1, 1 + len(names))),
        )
        for measure, title in (
            ("accuracy", "test accuracy, %"),
            ("log_loss", "test log loss, nats; lower is better"),
            ("auc", "area under the ROC curve" + ("" if data.n_classes == 2 else ", each class against the rest")),
        )
    )
    done = [row for row in mine if math.isfinite(row.epsilon) and row.method in AUTO.values()]
    how = Table(
        caption=f"{dataset}: what was done for each budget",
        columns=("total epsilon", "call", "what the recipe did", "guarantee trusts", "model"),
        rows=tuple((f"{_round_epsilon(r.epsilon):g}", r.method, r.how, r.trust, MODEL_WORDS[r.model]) for r in done),
    )
    error = 100 * math.sqrt(0.25 / len(data.y_test))
    words = (
        f"{len(data.y_train):,} training labels of {data.n_classes} classes; protected: {data.sensitive_label}. "
        f"{len(data.y_test):,} test labels, declared public: chance alone moves an accuracy by up to {error:.1f} points "
        f"(one standard error). {data.citation}"
    )
    idle = (
        ""
        if dataset not in _idle_curators(rows)
        else (
            " A curator is left out here: with so many rows for each class the recipe has nothing for her to count, and both "
            "calls do the same."
        )
    )
    plots = (_plot(mine, dataset, "accuracy", "test accuracy, %"), _plot(mine, dataset, "log_loss", "test log loss"))
    return Section(title=f"What it costs: {dataset}", blocks=(words + idle, *plots, *tables, how))


def _plot(mine: Sequence[DemoRow], dataset: str, measure: str, title: str) -> Lines:
    """Return a measure against epsilon, with the constant and no privacy as references."""
    series = []
    for method in dict.fromkeys(row.method for row in mine if math.isfinite(row.epsilon)):
        found = [row for row in mine if row.method == method]
        x, y = tuple(_round_epsilon(row.epsilon) for row in found), tuple(getattr(row, measure) for row in found)
        series.append(Series(name=method, x=x, y=y))
    ends = tuple((name, getattr(_find(mine, name), measure)) for name in (NO_PRIVACY, CONSTANT))
    return Lines(
        title=f"{dataset}: {title} against epsilon",
        series=tuple(series),
        x_title="total epsilon",
        y_title=title,
        alt="; ".join(f"{s.name} from {s.y[0]:.3g} to {s.y[-1]:.3g}" for s in series),
        x_log=True,
        references=ends,
    )


def _reading_section(rows: Sequence[DemoRow]) -> Section:
    sets = dict.fromkeys(row.dataset for row in rows)
    spent = {
        name: sum(_round_epsilon(row.epsilon) for row in rows if row.dataset == name and math.isfinite(row.epsilon))
        for name in sets
    }
    total = " and ".join(f"epsilon {cost:g} for {name}" for name, cost in spent.items())
    calls = "; ".join(f'LabelPrivateClassifier(model, epsilon=..., trust="{trust}")' for trust in AUTO)
    return Section(
        title="How to read it",
        blocks=(
            (
                f"The two calls are {calls}. Without a trusted party every label is answered once, by the question whose answer "
                "teaches most at this epsilon; where it pays, a quarter is asked first and its model chooses the questions of "
                "the rest. A curator may count labels in clusters of similar rows and publish noisy counts, which teaches more "
                "where rows or epsilon are few; at the same epsilon this is a weaker promise, because she must be trusted."
            ),
            (
                "Plain response is what one would do without the library: each label is kept or replaced at random, and the same "
                "model is trained on the result as if it were true. Its promise is the same as that of the call that trusts "
                "no one. With two classes both answers are flipped labels, which the likelier class survives: accuracies are "
                "close, and what the correction buys are probabilities that mean what they say, which log loss shows."
            ),
            (
                "The constant predicts the shares of classes among the training labels, whatever the row; it and the row "
                "without privacy read the labels. Which model serves at which epsilon was chosen on training rows of these "
                "public data (scripts/choose_demo.py); on labels of your own, PrivateSearchCV chooses within the budget."
            ),
            (
                "The noise was secure and unseeded: run it again and the numbers move a little. Each cell is one release and is "
                f"private as stated. All releases of one data set together would cost {total}, since they protect "
                "the same labels; and the rows without privacy protect nothing. Bundled data are public anyway: on your own, "
                "choose one release."
            ),
        ),
    )


def _versions_section() -> Section:
    pairs = (("command", "labeldp demo"), *versions().items())
    return Section(title="How it was made", blocks=(Facts(pairs=pairs),))
