"""Every mechanism on every engine: memory == local == dask, bit for bit, whatever the batches; through public names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

import labeldp
from labeldp.engines import open_released_table, privatize_table
from labeldp.errors import LabelDPError, PrivacyError
from labeldp.guarantee import SEEDED, did_not_see
from labeldp.mechanisms import (
    ClusterRR,
    InformativeResponse,
    MeanInformation,
    Mechanism,
    OptimalResponse,
    RandomizedResponse,
    RRTopK,
    RRWithPrior,
    UnbiasedReport,
)
from labeldp.priors import ArrayExamples, ClusterPrior, LearnedPrior, ModelPrior, PublicPrior, UniformPrior
from labeldp.random import as_key
from labeldp.release import Release, SensitiveLabels, load_release, privatize

N, SEED = 1_500, 11
COLUMNS = ["p0", "p1", "p2"]
ROWS = np.random.default_rng(5).dirichlet(np.ones(3), 4)  # a row of beliefs for each site


@dataclass(frozen=True, kw_only=True)
class Ladder(Mechanism):
    """The mechanism of docs/extending.md: geometric noise around an ordered label."""

    epsilon: float
    n_classes: int

    @property
    def guarantee(self) -> labeldp.Guarantee:
        return labeldp.Guarantee.pure(self.epsilon)

    def channel(self, prior: Any = None, *, groups: Any = None, n_classes: int | None = None) -> labeldp.MatrixChannel:
        steps = np.arange(self.n_classes)
        weights = np.exp(-self.epsilon / (2 * (self.n_classes - 1)) * abs(steps[:, None] - steps))
        return labeldp.MatrixChannel(weights / weights.sum(axis=1, keepdims=True), outputs_are_labels=True)


class Data:
    """A table of two files and the same in memory: eight distinct beliefs, four sites, two features."""

    def __init__(self, root: Path) -> None:
        rng = np.random.default_rng(0)
        self.root = root
        self.codes = rng.integers(0, 3, N)
        self.site = rng.integers(0, 4, N)
        self.beliefs = np.random.default_rng(1).dirichlet(np.ones(3), 8)[rng.integers(0, 8, N)]
        self.X = np.column_stack([rng.normal(size=N) + self.codes, rng.normal(size=N) - self.codes])
        columns = {name: self.beliefs[:, place] for place, name in enumerate(COLUMNS)}
        site = np.array(["n", "e", "s", "w"], dtype=object)[self.site]
        self.site = np.unique(site, return_inverse=True)[1]  # by the sorted names
        whole = pa.table({"x": self.X[:, 0], "y": self.X[:, 1], "site": site, "label": self.codes})
        self.features = pa.table(columns).append_column("site", pa.array(site))
        (root / "in").mkdir()
        for number, (low, high) in enumerate([(0, 900), (900, N)]):
            part = pa.table({**columns, **{name: whole[name] for name in whole.column_names}}).slice(low, high - low)
            pq.write_table(part, root / "in" / f"{number}.parquet", row_group_size=333)

    @property
    def labels(self) -> SensitiveLabels:
        return SensitiveLabels(self.codes, n_classes=3)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    return Data(tmp_path_factory.mktemp("mechanisms"))


Options = Callable[[Data], dict[str, Any]]
ROW = np.array([0.5, 0.3, 0.2])
#: A mechanism, what it is given on a table, and what in memory.
CASES: dict[str, tuple[Mechanism, Options, Options]] = {
    "rr": (RandomizedResponse(1.0), lambda _: {}, lambda _: {}),
    "ladder": (Ladder(epsilon=1.0, n_classes=3), lambda _: {}, lambda _: {}),
    "rr-top-k by columns": (
        RRTopK(1.0, k=2),
        lambda _: {"prior": PublicPrior(COLUMNS)},
        lambda data: {"prior": data.beliefs},
    ),
    "rr-top-k by a row": (RRTopK(1.0, k=2), lambda _: {"prior": ROW}, lambda _: {"prior": ROW}),
    "rr-with-prior by an array": (
        RRWithPrior(1.0),
        lambda data: {"prior": data.beliefs},
        lambda data: {"prior": data.beliefs},
    ),
    "rr-with-prior by groups": (
        RRWithPrior(1.0),
        lambda _: {"prior": ROWS, "groups": "site"},
        lambda data: {"prior": ROWS, "groups": data.site},
    ),
    "rr-with-prior, uniform": (RRWithPrior(1.0), lambda _: {"prior": UniformPrior()}, lambda _: {}),
    "informative": (InformativeResponse(1.0), lambda _: {}, lambda _: {}),
    "informative by columns": (
        InformativeResponse(1.0),
        lambda _: {"prior": PublicPrior(COLUMNS)},
        lambda data: {"prior": data.beliefs},
    ),
    "informative by a row": (InformativeResponse(1.0), lambda _: {"prior": ROW}, lambda _: {"prior": ROW}),
    "informative by groups": (
        InformativeResponse(1.0),
        lambda _: {"prior": ROWS, "groups": "site"},
        lambda data: {"prior": ROWS, "groups": data.site},
    ),
    "cluster-rr": (ClusterRR(1.0), lambda _: {"groups": "site"}, lambda data: {"groups": data.site}),
    "cluster-rr by an array": (
        ClusterRR(2.0, prune=True, tau=0.05),
        lambda data: {"groups": data.site},
        lambda data: {"groups": data.site},
    ),
    "cluster-rr without a histogram": (
        ClusterRR(1.0, split=0),
        lambda _: {"prior": ROWS, "groups": "site"},
        lambda data: {"prior": ROWS, "groups": data.site},
    ),
    "optimal": (OptimalResponse(1.0), lambda _: {}, lambda _: {}),
    "optimal by distinct columns": (
        OptimalResponse(1.0, objective=MeanInformation(values=(1, 2, 3))),
        lambda _: {"prior": PublicPrior(COLUMNS)},
        lambda data: {"prior": data.beliefs},
    ),
    "optimal by groups": (
        OptimalResponse(1.0, objective=UnbiasedReport(values=(1, 2, 3))),
        lambda _: {"prior": ROWS, "groups": "site"},
        lambda data: {"prior": ROWS, "groups": data.site},
    ),
}


def check_same(found: Release, expected: Release) -> None:
    """Codes, channel, released prior and promise are those of the other release."""
    np.testing.assert_array_equal(found.codes, expected.codes)
    assert found.codes.dtype == expected.codes.dtype
    assert found.channel.header() == expected.channel.header()
    for one, other in (
        (found.channel.row_arrays(), expected.channel.row_arrays()),
        (found.channel.example_arrays(), expected.channel.example_arrays()),
    ):
        assert one.keys() == other.keys()
        for name in one:
            np.testing.assert_array_equal(one[name], other[name])
    assert (found.prior is None) == (expected.prior is None)
    if found.prior is not None:
        np.testing.assert_array_equal(found.prior, expected.prior)
        np.testing.assert_array_equal(found.prior_index, expected.prior_index)


@pytest.mark.parametrize("case", CASES)
def test_memory_local_and_dask_agree(case: str, data: Data, inside: Any, tmp_path: Path, contents: Any) -> None:
    mechanism, on_table, in_memory = CASES[case]
    expected = privatize(data.labels, mechanism, rng=SEED, **in_memory(data))
    runs: list[dict[str, Any]] = [{"batch_rows": 17}, {}, {"engine": "dask", "client": inside}]
    for number, how in enumerate(runs):
        to = tmp_path / str(number)
        settings = {"label": "label", "classes": range(3), "mechanism": mechanism, "rng": SEED}
        done = privatize_table(data.root / "in", to=to, **settings, **on_table(data), **how)
        check_same(load_release(to), expected)
        assert done.guarantee.epsilon() == mechanism.guarantee.epsilon()
        assert done.guarantee.trust == expected.guarantee.trust
        assert repr(mechanism) in done.mechanism
        assert (done.expected_accuracy is None) == (not expected.channel.outputs_are_labels)
    assert contents(tmp_path / "0") == contents(tmp_path / "1") == contents(tmp_path / "2")


def model(data: Data) -> Any:
    return LogisticRegression().fit(pa.table({"x": data.X[:300, 0], "y": data.X[:300, 1]}), data.codes[:300])


#: Priors that are asked in memory and on a table: the same objects, but for the features they stand on.
PRIORS: dict[str, Callable[[Data], Any]] = {
    "uniform": lambda _: UniformPrior(),
    "columns": lambda _: PublicPrior(COLUMNS),
    "model": lambda data: PublicPrior(model(data)),
    "tempered model": lambda data: ModelPrior(model(data), temperature=0.5),
    "groups of a column": lambda _: ClusterPrior(groups="site", epsilon=0.2),
    "groups of an array": lambda data: ClusterPrior(groups=data.site, shrink=0.5, epsilon=0.2),
    "learned": lambda _: LearnedPrior(GaussianNB()),
}


#: RRTopK of a uniform belief never gives the last class: a learner of a first stage would miss it.
PAIRS = [
    *((name, RRWithPrior(1.0)) for name in PRIORS),
    *((name, InformativeResponse(1.0)) for name in PRIORS if name not in ("uniform", "learned")),
    *((name, RRTopK(1.0, k=2)) for name in PRIORS if name != "learned"),
]


@pytest.mark.parametrize(
    ("name", "mechanism"), PAIRS, ids=lambda value: value if isinstance(value, str) else type(value).__name__
)
def test_a_prior_is_one_object_in_memory_and_on_a_table(
    name: str, mechanism: Mechanism, data: Data, inside: Any, tmp_path: Path
) -> None:
    """The table has one file here: a model's chunks begin anew with each file, and in memory with each data set."""
    prior, key = PRIORS[name](data), as_key("test", SEED)
    table = pa.table({"x": data.X[:, 0], "y": data.X[:, 1], "label": data.codes})
    extra = {} if name in ("learned", "model", "tempered model") else {"features": data.features}
    for columns in extra.values():
        for column in columns.column_names:
            table = table.append_column(column, columns[column])
    pq.write_table(table, tmp_path / "one.parquet")
    X = data.X if name == "learned" else table.select(["x", "y"]) if "model" in name else data.features
    examples = ArrayExamples(X, data.labels)
    ready = prior.prepare(examples, budget=1.0)
    spent = ready.cost(1.0, n_examples=N, n_classes=3)
    response = mechanism.with_epsilon(1.0 - spent)
    beliefs = ready.beliefs(examples, budget=1.0, key=key, response=response)
    believed = beliefs.for_rows(X, slice(0, N))
    shared = {"prior": beliefs.rows, "groups": beliefs.table(N).index} if spent else {"prior": believed}
    expected = privatize(data.labels, response, rng=key, **shared)
    for number, how in enumerate([{"batch_rows": 100}, {"engine": "dask", "client": inside}]):
        done = privatize_table(
            tmp_path / "one.parquet", label="label", classes=range(3), to=tmp_path / str(number), rng=SEED,
            mechanism=mechanism, prior=prior, **how,
        )  # fmt: skip
        np.testing.assert_array_equal(done.load().codes, expected.codes)
        assert done.guarantee.epsilon() <= 1.0
        own = ready.promise(1.0, n_examples=N, n_classes=3).assumptions
        assert prior.sees_labels or {*own, SEEDED, *did_not_see("other columns")} == {*done.guarantee.assumptions}


def call(data: Data, to: Path, **options: Any) -> Any:
    settings: dict[str, Any] = {"label": "label", "classes": range(3), "to": to, "rng": SEED, **options}
    return privatize_table(data.root / "in", **settings)


def test_a_budget_and_a_mechanism(data: Data, tmp_path: Path) -> None:
    """With a budget the mechanism gets what the prior leaves of it; without one its own epsilon is the whole."""
    done = call(
        data, tmp_path / "a", mechanism=RRTopK(9.0, k=2), epsilon=1.0, prior=ClusterPrior(groups="site", epsilon=0.25)
    )
    assert done.mechanism.startswith("RRTopK(epsilon=0.75, k=2) on noisy histograms by site at epsilon 0.25")
    assert done.guarantee.epsilon() == 1.0
    assert [name for name, _ in done.guarantee.parts] == ["prior", "response"]
    done = call(data, tmp_path / "b", mechanism=RRTopK(1.0, k=2), prior=ClusterPrior(groups="site", epsilon=0.25))
    assert done.guarantee.epsilon() == 1.0
    done = call(data, tmp_path / "c", mechanism=ClusterRR(1.0), groups=ClusterPrior(n_clusters=5))
    assert done.load().prior.shape == (5, 3)


def test_outputs_that_are_not_labels_have_a_column_of_their_own(data: Data, tmp_path: Path) -> None:
    mechanism = OptimalResponse(1.0, objective=UnbiasedReport(values=(1, 2, 3)))
    done = call(data, tmp_path / "out", mechanism=mechanism)
    features, release = open_released_table(done.directory)
    assert "label" not in features.names
    assert not any(name.startswith("_labeldp_") for name in features.names)
    written = pq.read_table(tmp_path / "out" / "labels" / "0.parquet")
    assert "label" not in written.column_names
    np.testing.assert_array_equal(written["_labeldp_output"].to_numpy(), release.codes[:900])
    assert done.expected_accuracy is None
    fitted = labeldp.LabelPrivateClassifier(epsilon=1.0).fit_release(data.X, release)
    assert np.mean(fitted.predict(data.X) == data.codes) > 0.45  # 1,500 rows: guessing is 0.33 with deviation 0.012


class Lying(RandomizedResponse):
    """Claims half of what its channel reveals."""

    @property
    def guarantee(self) -> labeldp.Guarantee:
        return labeldp.Guarantee.pure(self.epsilon / 2)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({}, LabelDPError, r"`epsilon` must be given where no mechanism is"),
        ({"mechanism": "rr"}, LabelDPError, r"`mechanism` must be a mechanism, got 'rr'"),
        ({"mechanism": Lying(1.0)}, PrivacyError, r"claims epsilon = 0\.5, but its channel has 0\.99"),
        ({"mechanism": Lying(1.0), "epsilon": 1.0}, PrivacyError, r"promises epsilon|claims epsilon"),
        ({"mechanism": ClusterRR(1.0)}, LabelDPError, r"ClusterRR: `groups` must be given"),
        ({"mechanism": RandomizedResponse(1.0), "groups": "site"}, LabelDPError, r"`groups` must be left out"),
        ({"mechanism": RandomizedResponse(1.0), "prior": ROW}, LabelDPError, r"RandomizedResponse: `prior` must be left"),
        ({"mechanism": RRTopK(1.0, k=4), "prior": ROW}, LabelDPError, r"`k` must be an integer in \[1, 3\], got 4"),
        ({"mechanism": Ladder(epsilon=1.0, n_classes=5)}, LabelDPError, r"as many classes as the labels, got 5 for 3"),
        ({"mechanism": ClusterRR(1.0), "groups": "label"}, LabelDPError, r"not be the label column"),
        ({"mechanism": ClusterRR(1.0), "groups": "x"}, LabelDPError, r"whole numbers or text, got 'double'"),
        ({"mechanism": ClusterRR(1.0), "groups": np.zeros(3, int)}, LabelDPError, r"one entry per label, got 3 for 1500"),
        ({"mechanism": ClusterRR(1.0), "prior": PublicPrior(COLUMNS)}, LabelDPError, r"be shared by rows for ClusterRR"),
        ({"mechanism": RRTopK(1.0, k=2), "prior": ROWS[:2]}, LabelDPError, r"`source` must be \(3,\) or \(1500, 3\)"),
        ({"mechanism": OptimalResponse(1.0), "prior": LearnedPrior(GaussianNB())}, LabelDPError, r"own beliefs in stages"),
        ({"epsilon": 1.0, "prior": ROW, "n_clusters": 3}, LabelDPError, r"one source at most, got prior and n_clusters"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused_before_the_charge(
    options: dict[str, Any], kind: type[LabelDPError], message: str, data: Data, tmp_path: Path
) -> None:
    ledger = labeldp.Ledger(tmp_path / "ledger.sqlite")
    with pytest.raises(kind, match=message):
        call(data, tmp_path / "out", ledger=ledger, **options)
    assert ledger.entries() == ()
    assert not [path.name for path in tmp_path.iterdir() if "out" in path.name]


def test_too_many_groups_for_a_mechanism_are_refused_before_the_charge(tmp_path: Path) -> None:
    """OptimalResponse takes a thousand priors; the prior has one for each of 1,001 groups once it is paid for."""
    n = 2_002
    pq.write_table(pa.table({"g": np.arange(n) % 1_001, "label": np.arange(n) % 2}), tmp_path / "t.parquet")
    ledger = labeldp.Ledger(tmp_path / "ledger.sqlite")
    with pytest.raises(LabelDPError, match=r"at most 1,000 distinct rows"):
        privatize_table(
            tmp_path / "t.parquet", label="label", classes=[0, 1], to=tmp_path / "out", ledger=ledger,
            mechanism=OptimalResponse(1.0), prior=ClusterPrior(groups="g"),
        )  # fmt: skip
    assert ledger.entries() == ()


@pytest.mark.parametrize("rng", [None, SEED])
@pytest.mark.parametrize(
    "options", [{"mechanism": ClusterRR(1.0), "groups": "site"}, {"epsilon": 1.0, "cluster_column": "site"}], ids=str
)
def test_a_job_that_measures_is_taken_up_under_the_same_noise(
    options: dict[str, Any], rng: int | None, data: Data, tmp_path: Path, contents: Any
) -> None:
    """What was drawn before is part of the release, and the counts are charged once; a seed shows that they are the same."""

    def stop(done: int, total: int) -> None:
        if done > 900:  # the first file is whole
            raise LabelDPError("the power went.")

    ledger = labeldp.Ledger(tmp_path / "ledger.sqlite")
    settings: dict[str, Any] = {"rng": rng, "ledger": ledger, **options}
    with pytest.raises(LabelDPError, match=r"kept in"):
        call(data, tmp_path / "out", progress=stop, batch_rows=500, keep_unfinished=True, **settings)
    (place,) = tmp_path.glob(".out.partial-*")
    before = (place / "release" / "labels" / "0.parquet").read_bytes()
    done = call(data, tmp_path / "out", resume=place, **settings)
    assert (tmp_path / "out" / "labels" / "0.parquet").read_bytes() == before
    assert len(ledger.entries()) == 1
    assert done.seeded == (rng is not None)
    if rng is not None:
        call(data, tmp_path / "whole", **settings)
        assert contents(tmp_path / "whole") == contents(tmp_path / "out")


def test_a_learned_prior_is_refused_where_labels_would_be_drawn_twice(data: Data, tmp_path: Path) -> None:
    ledger = labeldp.Ledger(tmp_path / "ledger.sqlite")
    learner = labeldp.LabelPrivateClassifier(epsilon=1.0, prior=LearnedPrior(GaussianNB()), ledger=ledger)
    with pytest.raises(LabelDPError, match=r"`prior` must not draw labels itself, got 'LearnedPrior'"):
        learner.fit(data.X, data.codes)
    assert ledger.entries() == ()
