"""Two draws for one charge: kill, copy, delete, restore and edit the checkpoint of a fit, and fit again.

The attack. A fit with a checkpoint is charged once. A researcher stops it where she likes, reads what lies on the disk (hidden
folders too), changes it, and lets it go on. Each new draw of the same labels that she gets without a new charge is worth an
epsilon that no ledger knows of: a vote of fifteen draws is nearly the truth.

What is allowed: as many different draws of a piece as there are charges. On the commit before, 7 of the 25 steps at which a
kill can fall left two draws of a stage under one charge, and after fifteen deletions of stage-1 a majority vote was right for
92% of 2,000 labels of three classes at epsilon 1, of which one draw has 58%: all for one charge. Now the same draw comes again,
or the ledger is charged again, or it is refused. `benchmarks/kill_fits.py` has 200 kills; here are those at a few steps.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labeldp import (
    BudgetError,
    Guarantee,
    LabelCounts,
    Ledger,
    PrivacyError,
    ReleaseError,
    RRWithPrior,
    SensitiveLabels,
    load_release,
    measure,
)
from labeldp.errors import LabelDPError
from labeldp.learn import LabelPrivateClassifier, SoftmaxRegression
from labeldp.random import NoiseKey

ROOT = Path(__file__).parents[2]
N, CLASSES = 2_000, 3
RNG = np.random.default_rng(14)
X = RNG.normal(size=(N, 2))
Y = RNG.integers(CLASSES, size=N)


class Stopping(SoftmaxRegression):
    """Fails at the fits that are told: a kill that leaves the process alive."""

    stops: set[int] = set()  # noqa: RUF012 - set by each test
    fits = 0

    def fit_likelihood(self, X: Any, likelihood: Any, *, classes: Any) -> Any:
        Stopping.fits += 1
        if Stopping.fits in Stopping.stops:
            raise KeyboardInterrupt
        return super().fit_likelihood(X, likelihood, classes=classes)


class Fickle(SoftmaxRegression):
    """Trains differently each time, as a network without a random state does."""

    def fit_likelihood(self, X: Any, likelihood: Any, *, classes: Any) -> Any:
        model = super().fit_likelihood(X, likelihood, classes=classes)
        model.coef_ = model.coef_ + np.random.default_rng().normal(size=model.coef_.shape)
        return model


def classifier(place: Any, **settings: Any) -> LabelPrivateClassifier:
    labels = {"mechanism": RRWithPrior(1.0)}  # so that codes can be compared with labels
    chosen = {"epsilon": 1.0, "stages": 2, "classes": range(CLASSES), "checkpoint": place, **labels, **settings}
    return LabelPrivateClassifier(chosen.pop("estimator", SoftmaxRegression()), **chosen)


def stop_after_stage(number: int, place: Any, **settings: Any) -> None:
    """Leave a run of this process that has drawn so many stages and not ended."""
    Stopping.fits, Stopping.stops = 0, {number}
    with pytest.raises(KeyboardInterrupt):
        classifier(place, estimator=Stopping(), **settings).fit(X, Y)
    Stopping.stops = set()


def charges(ledger: Ledger) -> int:
    return sum(one.guarantee.epsilon() > 0 for one in ledger.entries())


# ------------------------------------------------------------------------------------------------------------- deleting


def test_fifteen_deletions_give_no_vote(tmp_path: Path) -> None:
    """A majority vote over draws that one charge paid: 92% right on the commit before, one draw now."""
    ledger = Ledger(tmp_path / "budget.ledger", budget=1.0)
    draws = []
    for _ in range(15):
        shutil.rmtree(tmp_path / "run" / "stage-1", ignore_errors=True)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # it is announced that a second charge is tried
                model = classifier(tmp_path / "run", stages=1, ledger=ledger).fit(X, Y)
        except BudgetError:
            continue
        draws.append(model.release_.codes)
    votes = np.stack([np.bincount(column, minlength=CLASSES) for column in np.array(draws).T])
    assert len(draws) == charges(ledger) == 1
    # One draw is right with probability e / (e + 2) = 0.576: a share of 2,000 above 0.63 has a chance below 1e-6.
    assert (votes.argmax(axis=1) == Y).mean() < 0.63


def test_a_deleted_stage_is_charged_again_and_said_before(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "budget.ledger")
    classifier(tmp_path / "run", stages=1, ledger=ledger).fit(X, Y)
    shutil.rmtree(tmp_path / "run" / "stage-1")
    with pytest.warns(UserWarning, match="charged again"):
        classifier(tmp_path / "run", stages=1, ledger=ledger).fit(X, Y)
    assert charges(ledger) == 2


def test_without_a_ledger_a_deleted_stage_is_refused(tmp_path: Path) -> None:
    classifier(tmp_path / "run").fit(X, Y)
    shutil.rmtree(tmp_path / "run" / "stage-2")
    with pytest.raises(PrivacyError, match="Without a ledger nothing would tell"):
        classifier(tmp_path / "run").fit(X, Y)


@pytest.mark.parametrize("also", [(), ("plan",), ("plan", "stage-2")])
def test_while_the_key_lives_the_same_draw_comes_again(tmp_path: Path, also: tuple[str, ...]) -> None:
    """Stage folders and the plan of a run that has not ended are deleted: it draws what it drew."""
    ledger = Ledger(tmp_path / "budget.ledger")
    stop_after_stage(2, tmp_path / "run", ledger=ledger)
    first = [load_release(tmp_path / "run" / f"stage-{number}").codes for number in (1, 2)]
    for name in {"stage-1", *also}:
        shutil.rmtree(tmp_path / "run" / name)
    if "plan" in also and "stage-2" not in also:
        with pytest.raises(ReleaseError, match="stage-2 is there, and plan is not"):
            classifier(tmp_path / "run", ledger=ledger).fit(X, Y)
        return
    release = classifier(tmp_path / "run", ledger=ledger).fit(X, Y).release_
    assert charges(ledger) == 1
    for number, codes in enumerate(first):
        assert np.array_equal(release.codes[release.stage == number], codes)


# ----------------------------------------------------------------------------------------------- other inputs, same key


@pytest.mark.parametrize("with_ledger", [True, False])
def test_other_beliefs_do_not_draw_a_stage_again(tmp_path: Path, with_ledger: bool) -> None:
    """An estimator that trains differently would draw stage 2 by another channel: it is drawn, seen by no one, refused."""
    ledger = Ledger(tmp_path / "budget.ledger") if with_ledger else None
    stop_after_stage(2, tmp_path / "run", ledger=ledger)
    shutil.rmtree(tmp_path / "run" / "stage-2")
    with pytest.raises(PrivacyError, match="was drawn before from other beliefs"):
        classifier(tmp_path / "run", estimator=Fickle(), ledger=ledger).fit(X, Y)
    assert not (tmp_path / "run" / "stage-2").exists()


def test_other_labels_do_not_meet_the_same_noise(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "budget.ledger")
    stop_after_stage(1, tmp_path / "run", ledger=ledger)
    shutil.rmtree(tmp_path / "run" / "stage-1")
    other = np.where(np.arange(N) == 7, (Y + 1) % CLASSES, Y)
    with pytest.raises(LabelDPError, match="got another labels"):
        classifier(tmp_path / "run", ledger=ledger).fit(X, other)


def test_an_edited_split_is_refused(tmp_path: Path) -> None:
    """Rows of stage 1, which is kept, moved to stage 2 would be drawn twice."""
    ledger = Ledger(tmp_path / "budget.ledger")
    stop_after_stage(1, tmp_path / "run", ledger=ledger)
    split = np.load(tmp_path / "run" / "plan" / "stage.npy")
    np.save(tmp_path / "run" / "plan" / "stage.npy", 1 - split)
    with pytest.raises(LabelDPError, match="changed after it was written"):
        classifier(tmp_path / "run", ledger=ledger).fit(X, Y)


def test_a_name_that_is_edited_is_charged(tmp_path: Path) -> None:
    """The name of a run that was charged, written into the file of another: the key does not fit it."""
    ledger = Ledger(tmp_path / "budget.ledger")
    classifier(tmp_path / "paid", stages=1, ledger=ledger).fit(X, Y)
    classifier(tmp_path / "run", stages=1, ledger=ledger).fit(X, Y)
    shutil.copy(tmp_path / "paid" / "run-1.json", tmp_path / "run" / "run-1.json")
    shutil.rmtree(tmp_path / "run" / "stage-1")
    with pytest.warns(UserWarning, match="charged again"):
        classifier(tmp_path / "run", stages=1, ledger=ledger).fit(X, Y)
    assert charges(ledger) == 3


def test_a_table_whose_label_changed_is_not_taken_up(tmp_path: Path) -> None:
    """The job of a table has its key kept too: on the commit before it went on with other labels, under the same noise."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from labeldp.engines import privatize_table

    def run(labels: Any, **options: Any) -> Any:
        pq.write_table(pa.table({"a": X[:, 0], "y": labels}), tmp_path / "t.parquet")
        place, names = tmp_path / "t.parquet", {"label": "y", "classes": range(CLASSES), "epsilon": 1.0}
        return privatize_table(place, to=tmp_path / "out", keep_unfinished=True, batch_rows=500, **names, **options)

    def stop(done: int, _: int) -> None:
        if done > 1_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(Y, progress=stop)
    (job,) = tmp_path.glob(".out.partial-*")
    with pytest.raises(LabelDPError, match="`resume` must be the same job as before"):
        run(np.where(np.arange(N) == 7, (Y + 1) % CLASSES, Y), resume=job)
    run(Y, resume=job)
    assert (tmp_path / "out").is_dir()


@pytest.mark.parametrize("way", ["public prior", "column of the prior", "groups"])
def test_a_table_that_is_answered_otherwise_is_not_taken_up(way: str, tmp_path: Path) -> None:
    """The same labels and noise through another channel would show where the two answers part: refused, whatever changed.

    On the commit before all three went on. A job whose rows are answered as before is taken up, in other batches too.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from labeldp.engines import privatize_table
    from labeldp.mechanisms import ClusterRR
    from labeldp.priors import PublicPrior

    sharp, flat = np.full((N, CLASSES), 0.05), np.full((N, CLASSES), 1 / CLASSES)
    sharp[np.arange(N), np.arange(N) % CLASSES] = 1 - 0.05 * (CLASSES - 1)
    site = np.arange(N) % 3

    def run(*, changed: bool, **options: Any) -> Any:
        beliefs = np.where(np.arange(N)[:, None] % 2, sharp, flat) if changed else sharp
        sites = np.where(np.arange(N) == 7, (site + 1) % 3, site) if changed else site
        columns = {f"p{k}": beliefs[:, k] for k in range(CLASSES)}
        pq.write_table(pa.table({"site": sites, **columns, "y": Y}), tmp_path / "t.parquet")
        how: dict[str, Any] = {
            "public prior": {"prior": PublicPrior(beliefs), "epsilon": 1.0},
            "column of the prior": {"prior_columns": list(columns), "epsilon": 1.0},
            "groups": {"groups": "site", "mechanism": ClusterRR(1.0)},
        }[way]
        names = {"label": "y", "classes": range(CLASSES), "to": tmp_path / "out", "keep_unfinished": True}
        return privatize_table(tmp_path / "t.parquet", **names, **how, **options)

    def stop(done: int, _: int) -> None:
        if done > 1_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(changed=False, progress=stop, batch_rows=500)
    (job,) = tmp_path.glob(".out.partial-*")
    with pytest.raises(LabelDPError, match="`resume` must be the same job as before"):
        run(changed=True, resume=job, batch_rows=500)
    run(changed=False, resume=job, batch_rows=700)
    assert (tmp_path / "out").is_dir()


# --------------------------------------------------------------------------------------------- a charge of another thing


class Unwilling(Ledger):
    """Stops whoever wants to charge: a kill right before the charge."""

    def charge(self, *_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt


#: Rows that anybody may write with a note of her choice; none of them pays for a run of epsilon 1 on the account "labels".
FREE: dict[str, dict[str, Any]] = {
    "nothing is paid": {"guarantee": Guarantee.pure(0.0), "rows": "0" * 64, "n_rows": 1},
    "nothing is paid for these rows": {"guarantee": Guarantee.pure(0.0)},
    "another account pays": {"label_set": "of no one"},
    "other rows": {"rows": "0" * 64},
    "fewer rows": {"n_rows": 1},
}


def write_free_row(ledger: Ledger, note: str, paid: Any, **changes: Any) -> None:
    facts = {"guarantee": paid.guarantee, "label_set": paid.label_set, "rows": paid.rows, "n_rows": paid.n_rows}
    ledger.charge(**{**facts, **changes}, mechanism="nothing", note=note)


@pytest.mark.parametrize("way", FREE)
def test_a_row_that_did_not_pay_is_no_charge_of_a_run(way: str, tmp_path: Path) -> None:
    """A run is stopped before its charge, and its name is in run-1.json: a row of that note must not stand for the charge.

    On the commit before, one of epsilon 0 did: the fit released at epsilon 1, and the ledger had nothing.
    """
    with pytest.raises(KeyboardInterrupt):
        classifier(tmp_path / "run", ledger=Unwilling(tmp_path / "budget.ledger")).fit(X, Y)
    name = json.loads((tmp_path / "run" / "run-1.json").read_text())["run"]
    ledger = Ledger(tmp_path / "budget.ledger")
    paid = Ledger(tmp_path / "other.ledger")
    classifier(tmp_path / "other", ledger=paid).fit(X, Y)
    write_free_row(ledger, f"run {name}", paid.entries()[0], **FREE[way])
    model = classifier(tmp_path / "run", ledger=ledger).fit(X, Y)
    assert model.release_.ledger_entry == 2
    assert ledger.entries()[1].guarantee == model.release_.guarantee
    again = classifier(tmp_path / "run", ledger=ledger).fit(X, Y)
    assert again.release_.ledger_entry == 2  # its own charge is found, behind the other row
    assert charges(ledger) == 1 + (FREE[way].get("guarantee") is None)


@pytest.mark.parametrize("way", FREE)
def test_a_row_that_did_not_pay_is_no_charge_of_a_table(way: str, tmp_path: Path) -> None:
    """The same of a table's job, whose name is that of its hidden folder."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from labeldp.engines import privatize_table

    pq.write_table(pa.table({"a": X[:, 0], "y": Y}), tmp_path / "t.parquet")

    def run(to: str, ledger: Ledger, **options: Any) -> Any:
        names = {"label": "y", "classes": range(CLASSES), "epsilon": 1.0, "keep_unfinished": True}
        return privatize_table(tmp_path / "t.parquet", to=tmp_path / to, ledger=ledger, **names, **options)

    with pytest.raises(KeyboardInterrupt):
        run("out", Unwilling(tmp_path / "budget.ledger"))
    (job,) = tmp_path.glob(".out.partial-*")
    ledger, paid = Ledger(tmp_path / "budget.ledger"), Ledger(tmp_path / "other.ledger")
    run("other", paid)
    write_free_row(ledger, f"job {job.name.rpartition('-')[2]}", paid.entries()[0], **FREE[way])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the account of the free row was known by its name alone
        done = run("out", ledger, resume=job)
    assert done.ledger_entry == 2
    assert ledger.entries()[1].guarantee == done.guarantee


# ---------------------------------------------------------------------------------------------------------------- copies


def test_copies_of_a_sealed_run_draw_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """cp -r, twice gone on by new processes: one charge and one draw; with other beliefs the second is refused."""
    from labeldp.learn import Checkpoint, checkpoint
    from labeldp.release import unfinished

    monkeypatch.setattr(unfinished, "N", 2**10)  # a passphrase that is cheap to guess, and quick to test

    def place(name: str) -> Checkpoint:
        return Checkpoint(tmp_path / name, passphrase="correct horse battery")

    ledger = Ledger(tmp_path / "budget.ledger")
    stop_after_stage(1, place("run"), ledger=ledger)
    for copy in ("one", "two", "three"):
        shutil.copytree(tmp_path / "run", tmp_path / copy)
    drawn = []
    for copy in ("one", "two"):
        monkeypatch.setattr(checkpoint, "_held", {})  # as another process would find it
        drawn.append(classifier(place(copy), ledger=ledger).fit(X, Y).release_.codes)
    assert np.array_equal(*drawn)
    monkeypatch.setattr(checkpoint, "_held", {})
    with pytest.raises(PrivacyError, match="was drawn before from other beliefs"):
        classifier(place("three"), estimator=Fickle(), ledger=ledger).fit(X, Y)
    assert charges(ledger) == 1
    monkeypatch.setattr(checkpoint, "_held", {})
    with pytest.raises(LabelDPError, match="`passphrase` must open the key of the run, got None"):
        classifier(tmp_path / "run", ledger=ledger).fit(X, Y)
    with pytest.raises(PrivacyError, match="`passphrase` must be that of the job"):
        classifier(Checkpoint(tmp_path / "run", passphrase="another long guess"), ledger=ledger).fit(X, Y)
    for name in ("one", "two"):
        assert json.loads((tmp_path / name / "run-1.json").read_text())["key"] is None


class Nudged(SoftmaxRegression):
    """Trains as ever, and then moves a little: its beliefs are other ones, by a billionth."""

    def fit_likelihood(self, X: Any, likelihood: Any, *, classes: Any) -> Any:
        model = super().fit_likelihood(X, likelihood, classes=classes)
        model.coef_ = model.coef_ * (1 + 1e-9)
        return model


def same_answers(one: Any, other: Any, rows: Any) -> float:
    """Return the share of rows that have the same answer, a label or a set."""
    return float(np.mean([np.array_equal(a, b) for a, b in zip(one.codes[rows], other.codes[rows], strict=True)]))


#: Two draws of a label of three classes at epsilon 1 by channels that are as good as equal agree, by independent noise, with a chance
#: of about 0.42 (e / (e + 2), squared, and twice 1 / (e + 2), squared), and of about 0.6 where a sharp prior leaves few answers; by the
#: same noise always. Of 500 rows or more a share above 0.75 has a chance below 1e-10 in the first cases (six standard deviations).
APART = 0.75


@pytest.mark.parametrize("estimator", [SoftmaxRegression(), Nudged()], ids=["the same beliefs", "other beliefs"])
def test_copies_without_a_ledger_share_no_noise_through_two_channels(
    estimator: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing tells one copy of the other: with the same beliefs they draw the same, with others they have independent noise.

    On the commit before both had the same noise, through two channels: for a share of labels that pair of answers gave the label away.
    """
    from labeldp.learn import Checkpoint, checkpoint
    from labeldp.release import unfinished

    monkeypatch.setattr(unfinished, "N", 2**10)

    def place(name: str) -> Checkpoint:
        return Checkpoint(tmp_path / name, passphrase="correct horse battery")

    stop_after_stage(1, place("run"), mechanism=None)
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    drawn = []
    for name, chosen in (("run", SoftmaxRegression()), ("copy", estimator)):
        monkeypatch.setattr(checkpoint, "_held", {})  # as another process would find it
        drawn.append(classifier(place(name), estimator=chosen, mechanism=None).fit(X, Y).release_)
    stage = drawn[0].stage
    assert np.array_equal(stage, drawn[1].stage)
    assert same_answers(*drawn, stage == 0) == 1.0
    agree = same_answers(*drawn, stage == 1)
    assert agree < APART if isinstance(estimator, Nudged) else agree == 1.0


@pytest.mark.parametrize("way", ["public prior", "learner", "counts"])
@pytest.mark.parametrize("changed", [False, True])
def test_copies_of_a_table_share_no_noise_through_two_channels(
    way: str, changed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same of a table's job that was copied before it had noted how it answers."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from sklearn.linear_model import SGDClassifier

    from labeldp.engines import job, privatize_table
    from labeldp.priors import ClusterPrior, LearnedPrior, PublicPrior
    from labeldp.release import unfinished

    monkeypatch.setattr(unfinished, "N", 2**10)
    sharp = np.full((N, CLASSES), 0.05)
    sharp[np.arange(N), np.arange(N) % CLASSES] = 1 - 0.05 * (CLASSES - 1)
    site = np.arange(N) % 400

    def run(folder: str, *, other: bool, **options: Any) -> Any:
        (tmp_path / folder).mkdir(exist_ok=True)
        sites = np.where(np.arange(N) == 7, 0, site) if other else site
        pq.write_table(pa.table({"a": X[:, 0], "b": X[:, 1], "site": sites, "y": Y}), tmp_path / "t.parquet")
        nudge = 1e-9 * other
        how: Any = {
            "public prior": PublicPrior(sharp * (1 - nudge) + nudge / CLASSES),
            "learner": LearnedPrior(SGDClassifier(loss="log_loss", alpha=1e-4 * (1 + nudge), random_state=0)),
            "counts": ClusterPrior(groups="site", epsilon=0.5),
        }[way]
        names = {"label": "y", "classes": range(CLASSES), "epsilon": 1.0, "passphrase": "correct horse battery"}
        return privatize_table(tmp_path / "t.parquet", to=tmp_path / folder / "out", prior=how, **names, **options)

    with pytest.raises(KeyboardInterrupt):
        run("one", other=False, ledger=Unwilling(tmp_path / "budget.ledger"))
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    drawn = []
    for folder, other in (("one", False), ("two", changed)):
        monkeypatch.setattr(job, "_held", {})
        (place,) = (tmp_path / folder).glob(".out.partial-*")
        drawn.append(run(folder, other=other, resume=place).load())
    if way == "counts":  # shares of counts by the same noise would differ in the two groups of row 7 alone
        assert (drawn[0].prior == drawn[1].prior).all(axis=1).mean() < APART if changed else True
    first = drawn[0].stage == 0 if way == "learner" else np.zeros(N, bool)
    assert same_answers(*drawn, first) == 1.0 if first.any() else True
    agree = same_answers(*drawn, ~first)
    assert agree < APART if changed else agree == 1.0


def test_noisy_counts_of_other_groups_have_other_noise() -> None:
    """A prior's counts by one key: of the same groups the same, of groups that differ in one row independent."""
    groups = np.arange(N) % 400
    moved = np.where(np.arange(N) == 7, 0, groups)

    def count(chosen: Any) -> Any:
        key = NoiseKey.carried(bytes(32), seeded=False).apart()
        labels = SensitiveLabels(Y, n_classes=CLASSES)
        return measure(labels, LabelCounts(groups=chosen, n_groups=400), epsilon=1.0, rng=key).value

    assert np.array_equal(count(groups), count(groups))
    exact = [LabelCounts(groups=one, n_groups=400).exact(Y, n_classes=CLASSES) for one in (groups, moved)]
    noise = [count(one) - true for one, true in zip((groups, moved), exact, strict=True)]
    # Two draws of discrete Laplace noise of rate 1/2 are equal with a chance of 0.13; of 1,200 pairs half are with less than 1e-12.
    assert np.mean(noise[0] == noise[1]) < 0.5


def test_a_passphrase_shows_nowhere(tmp_path: Path) -> None:
    import pickle

    from labeldp.learn import Checkpoint

    kept = Checkpoint(tmp_path, passphrase="correct horse battery")
    model = classifier(kept)
    assert "horse" not in repr(model) + repr(kept)
    assert b"horse" not in pickle.dumps(kept)
    with pytest.raises(LabelDPError, match="`passphrase` must be a text of 12 characters or more"):
        Checkpoint(tmp_path, passphrase="short")


# ----------------------------------------------------------------------------------------------------------------- kills


def test_kills_at_the_steps_of_a_fit() -> None:
    """SIGKILL right after an fsync or a rename, up to three times, with and without a passphrase; the thief reads all."""
    script = [
        sys.executable,
        str(ROOT / "benchmarks" / "kill_fits.py"),
        "--kills",
        "9",
        "--at",
        "steps",
        "--first",
        "14",
    ]
    one = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    environment = {**os.environ, **one, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(script, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout)["kills"] >= 9


def test_what_a_kill_left_is_removed_and_refused(tmp_path: Path) -> None:
    stop_after_stage(1, tmp_path / "run")
    hidden = tmp_path / "run" / ".stage-2.partial-0123456789abcdef"
    shutil.copytree(tmp_path / "run" / "stage-1", hidden)
    with pytest.raises(ReleaseError, match="got unfinished work"):
        load_release(hidden)
    classifier(tmp_path / "run").fit(X, Y)
    assert not list((tmp_path / "run").glob(".*"))


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o277])
def test_nobody_else_may_look(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        classifier(tmp_path / "run").fit(X, Y)
    finally:
        os.umask(before)
    for path in (tmp_path / "run").rglob("*"):
        assert path.parent == tmp_path / "run" or stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "run" / "run-1.json").stat().st_mode) == 0o600


def test_one_run_at_a_time(tmp_path: Path) -> None:
    class Nosy(SoftmaxRegression):
        def fit_likelihood(self, X: Any, likelihood: Any, *, classes: Any) -> Any:
            with pytest.raises(LabelDPError, match="be a directory of one run at a time"):
                classifier(tmp_path / "run").fit(X, np.zeros(len(X), int))
            return super().fit_likelihood(X, likelihood, classes=classes)

    classifier(tmp_path / "run", estimator=Nosy()).fit(X, Y)
