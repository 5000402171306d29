"""Two stages in one release, by a keyed hash of the row; and training on a release in batches and sums."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

import labeldp
from labeldp.engines import open_released_table, privatize_table, train_released
from labeldp.errors import LabelDPError
from labeldp.learn import SoftmaxRegression
from labeldp.mechanisms import UnbiasedReport
from labeldp.priors.staged import FIRST_SHARE, stage_of, stage_salt
from labeldp.random import NoiseKey, as_key
from labeldp.release import SensitiveLabels, load_release, privatize

SEED = 11
N = 20_000


@pytest.fixture(scope="module")
def clear(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three classes that two features tell apart, in three files."""
    root = tmp_path_factory.mktemp("clear")
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 3, N)
    (root / "in").mkdir()
    table = pa.table(
        {"x": rng.normal(size=N) + 3 * codes, "y": rng.normal(size=N) - codes, "label": codes.astype(np.int8)}
    )
    for number, low in enumerate(range(0, N, 8_500)):
        pq.write_table(table.slice(low, 8_500), root / "in" / f"{number}.parquet")
    return root


def raw(clear: Path) -> pa.Table:
    return pa.concat_tables([pq.read_table(path) for path in sorted((clear / "in").iterdir())])


def call(clear: Path, to: str, **options: Any) -> Any:
    settings: dict[str, Any] = {"label": "label", "epsilon": 1.0, "rng": SEED, "purpose": "labels", **options}
    return privatize_table(clear / "in", to=clear / to, **settings)


@pytest.fixture(scope="module")
def staged(clear: Path) -> Path:
    return Path(str(call(clear, "staged", learner=GaussianNB()).directory))


class TestStages:
    def test_shares_and_independence_of_place(self) -> None:
        """100,000 rows: the share's standard deviation is 0.0015; 0.01 is more than six of them (p < 1e-9)."""
        salt = stage_salt(NoiseKey.from_seed(1))
        whole = stage_of(salt, 0, 100_000, first_share=FIRST_SHARE)
        assert abs(np.mean(whole == 0) - FIRST_SHARE) < 0.01
        np.testing.assert_array_equal(stage_of(salt, 777, 1000, first_share=FIRST_SHARE), whole[777:1777])
        other = stage_of(stage_salt(NoiseKey.from_seed(2)), 0, 100_000, first_share=FIRST_SHARE)
        assert np.any(whole != other)

    def test_the_salt_does_not_give_the_key_away(self) -> None:
        key = NoiseKey.from_seed(1)
        assert stage_salt(key) != key.reveal()

    def test_the_first_stage_is_randomized_response_under_the_same_noise(self, staged: Path, clear: Path) -> None:
        release = load_release(staged)
        labels = SensitiveLabels(raw(clear)["label"].to_numpy(), n_classes=3)
        plain = privatize(labels, labeldp.RRWithPrior(1.0), prior=np.full((N, 3), 1 / 3), rng=as_key("test", SEED))
        assert release.stage is not None
        first = release.stage == 0
        np.testing.assert_array_equal(
            release.stage, stage_of(stage_salt(as_key("test", SEED)), 0, N, first_share=FIRST_SHARE)
        )
        np.testing.assert_array_equal(release.codes[first], plain.codes[first])
        assert np.any(release.codes[~first] != plain.codes[~first])

    def test_the_second_stage_gains(self, staged: Path, clear: Path) -> None:
        """6,000 labels a stage or more: a share's standard deviation is below 0.007; 0.1 is fourteen of them."""
        release, truth = load_release(staged), raw(clear)["label"].to_numpy()
        right = release.codes == truth
        assert right[release.stage == 1].mean() > right[release.stage == 0].mean() + 0.1
        assert release.guarantee.epsilon() == 1.0
        assert "two stages" in release.mechanism

    @pytest.mark.parametrize("batch_rows", [100, 10**6])
    def test_batches_do_not_matter(
        self, batch_rows: int, staged: Path, clear: Path, contents: Callable[[Path], dict[str, str]]
    ) -> None:
        done = call(clear, f"staged{batch_rows}", learner=GaussianNB(), batch_rows=batch_rows)
        assert contents(Path(str(done.directory))) == contents(staged)

    def test_a_learner_reads_sets(self, clear: Path) -> None:
        """The answers of the first stage are those of one call in memory without a prior; the others follow the learner.

        Both stages know the true class is in an answer as often as their shapes say: 6,000 rows or more a stage, so 0.05 is
        seven standard deviations of a share.
        """
        done = call(clear, "sets", learner=GaussianNB(), purpose="training", batch_rows=999)
        assert "InformativeResponse" in done.mechanism
        assert done.answers == "a set of classes, by what the prior leaves open"
        release, truth = load_release(done.directory), raw(clear)["label"].to_numpy()
        flat = np.full((N, 3), 1 / 3)
        plain = privatize(SensitiveLabels(truth, n_classes=3), labeldp.InformativeResponse(1.0), prior=flat, rng=SEED)
        first = release.stage == 0
        np.testing.assert_array_equal(release.codes[first], plain.codes[first])
        assert np.any(release.codes[~first] != plain.codes[~first])
        named = release.channel.members(release.codes)[np.arange(N), truth]
        shapes = release.channel.shapes_of(release.codes)
        surely = shapes[:, 1] * release.channel.chances(shapes)[0]
        for part in (first, ~first):
            assert abs(named[part].mean() - surely[part].mean()) < 0.05
        assert release.guarantee.epsilon() == 1.0

    def test_a_learner_that_cannot_read_the_answers_is_refused_before_the_charge(
        self, clear: Path, tmp_path: Path
    ) -> None:
        ledger = labeldp.Ledger(tmp_path / "ledger.sqlite", budget=2.0)
        odd = labeldp.OptimalResponse(1.0, objective=UnbiasedReport(values=(0.0, 1.0, 2.0)))
        with pytest.raises(LabelDPError, match=r"answer each row.s own beliefs in stages"):
            call(clear, "no", learner=GaussianNB(), mechanism=odd, epsilon=None, purpose=None, ledger=ledger)
        assert not ledger.entries()

    def test_a_learner_that_cannot_be_fed(self, clear: Path) -> None:
        with pytest.raises(LabelDPError, match=r"`learner` must have `partial_fit` and `predict_proba`"):
            call(clear, "no", learner=LogisticRegression())


class TestTraining:
    def in_memory(self, directory: Path) -> tuple[Any, Any]:
        features, release = open_released_table(directory)
        columns = [
            np.concatenate([batch.column(name).to_numpy() for batch in features.batches()]) for name in ("x", "y")
        ]
        return np.column_stack(columns), release

    def test_softmax_by_sums_is_softmax_in_memory(self, staged: Path) -> None:
        """Both stop when no entry of the gradient exceeds 1e-6; the loss is convex with curvature of 1e-2 and more here."""
        X, release = self.in_memory(staged)
        settings = {"l2": 1e-2, "tol": 1e-6}
        whole = SoftmaxRegression(**settings).fit_targets(
            X, release.channel.unbiased_targets(release.codes), classes=release.classes
        )
        found = train_released(SoftmaxRegression(**settings), staged, batch_rows=999)
        np.testing.assert_allclose(found.coef_, whole.coef_, atol=1e-3)
        np.testing.assert_allclose(found.intercept_, whole.intercept_, atol=1e-3)
        assert found.predict(X[:5]).tolist() == whole.predict(X[:5]).tolist()

    @pytest.mark.filterwarnings("ignore:train_released. the solver stopped")  # after five steps, as it is told
    def test_a_cluster_gives_the_same_model(self, staged: Path) -> None:
        distributed = pytest.importorskip("distributed", reason="needs labeldp[dask]")
        from labeldp.engines.dask import run_loop

        here = train_released(SoftmaxRegression(max_iter=5), staged)
        where = {"n_workers": 1, "threads_per_worker": 2, "dashboard_address": "127.0.0.1:0"}
        with (
            run_loop() as loop,
            distributed.Client(processes=False, set_as_default=False, loop=loop, **where) as client,
        ):
            there = train_released(SoftmaxRegression(max_iter=5), staged, engine="dask", client=client)
        np.testing.assert_allclose(there.coef_, here.coef_, rtol=1e-9)  # sums of three pieces, added in another order

    def test_partial_fit_learns_the_classes(self, staged: Path, clear: Path) -> None:
        X, _ = self.in_memory(staged)
        model = train_released(GaussianNB(), staged, epochs=2)
        assert np.mean(model.predict(X) == raw(clear)["label"].to_numpy()) > 0.8  # 0.33 by guessing, 0.93 at best

    def test_partial_fit_is_that_of_one_batch(self, staged: Path) -> None:
        X, release = self.in_memory(staged)
        found = train_released(GaussianNB(), staged, batch_rows=777)
        whole = GaussianNB().fit(X, release.labels)
        np.testing.assert_allclose(found.theta_, whole.theta_, rtol=1e-9)  # running means, rounded in another order

    def test_refusals(self, staged: Path) -> None:
        with pytest.raises(LabelDPError, match=r"`estimator` must have `partial_fit`, or be a SoftmaxRegression"):
            train_released(LogisticRegression(), staged)
        with pytest.raises(LabelDPError, match=r"Did you mean `x`"):
            train_released(GaussianNB(), staged, columns=["xx"])


def test_pate_teachers_through_dask(clear: Path) -> None:
    """joblib's dask backend: the teachers learn on a cluster's workers, and are the same teachers."""
    joblib = pytest.importorskip("joblib")
    distributed = pytest.importorskip("distributed", reason="needs labeldp[dask]")
    from labeldp.engines.dask import run_loop

    table = raw(clear).slice(0, 1_200)
    X, y = np.column_stack([table["x"].to_numpy(), table["y"].to_numpy()]), table["label"].to_numpy()
    model = labeldp.learn.PATE(
        GaussianNB(), student=GaussianNB(), n_teachers=20, epsilon=20.0, classes=range(3), random_state=0, n_jobs=2
    )
    here = clone(model).set_params(n_jobs=1).fit(X[:1_000], y[:1_000], X[1_000:])
    where = {"n_workers": 1, "threads_per_worker": 2, "dashboard_address": "127.0.0.1:0"}
    with (
        run_loop() as loop,
        distributed.Client(processes=False, loop=loop, **where) as client,
        joblib.parallel_config("dask"),
    ):
        there = model.fit(X[:1_000], y[:1_000], X[1_000:])
        ran = client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.transition_log))
    assert ran > 20  # the cluster did it: a teacher is a task of several steps
    np.testing.assert_array_equal(there.answers_, here.answers_)
    np.testing.assert_array_equal(there.predict(X), here.predict(X))
