"""What the audits find, in figures: PYTHONPATH=src python benchmarks/audits.py > benchmarks/results/audits.md.

Takes about ten minutes of one core. `--quick` makes small versions of every table, to see that it runs, and `--noise` the
two tables about noise that is not fresh alone.
"""

from __future__ import annotations

import argparse
import platform
import runpy
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import labeldp
from labeldp.audit import attack_release, canary_audit, channel_audit, model_scores, release_scores
from labeldp.audit.inference import accuracy_audit, label_inference
from labeldp.audit.suite import door_audit
from labeldp.learn import PATE
from labeldp.priors import ClusterPrior, PublicPrior
from labeldp.testing.broken import OffByOneK, broken_subjects

N = 2000
SURE = 1 - 1e-6
Row = tuple[Any, ...]


def response(epsilon: float, n_classes: int) -> Callable[[Any], Any]:
    mechanism = labeldp.RandomizedResponse(epsilon, n_classes=n_classes)
    return lambda labels: labeldp.privatize(labels, mechanism).codes


def ignoring(labels: Any) -> Any:
    return np.random.default_rng().integers(0, 3, len(labels))


def data() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 4))
    return X, (X[:, 0] + rng.normal(size=N) > 0).astype(np.int64)


def null(runs: int) -> Iterator[Row]:
    """A mechanism and a training that ignore their labels."""
    found = [channel_audit(ignoring, n_classes=3, n_draws=30_000).lower_bound for _ in range(runs)]
    yield "mechanism, 30,000 draws", runs, sum(b == 0 for b in found), f"{max(found):.2g}"
    rng, labels = np.random.default_rng(1), np.random.default_rng(2).integers(0, 3, 1000)

    def train(y: Any) -> Any:
        return rng.normal(size=(len(y), 3))

    found = [canary_audit(train, labels, n_classes=3).lower_bound for _ in range(runs)]
    yield "training, 1,000 canaries", runs, sum(b == 0 for b in found), f"{max(found):.2g}"
    X, y = data()
    constant = labeldp.LabelPrivateClassifier(epsilon=1.0, classes=[0, 1]).fit(X, y)
    found = [
        canary_audit(lambda _: model_scores(constant, X), y, n_classes=2, references=0).lower_bound for _ in range(runs)
    ]
    yield "a model of other labels, 1,000 canaries", runs, sum(b == 0 for b in found), f"{max(found):.2g}"


def sharpness(runs: int, draws: int) -> Iterator[Row]:
    """Randomized response: how close the bound comes, and whether ten percent too much is seen."""
    for n_classes in (2, 10):
        for epsilon in (1.0, 1.1):
            run = response(epsilon, n_classes)
            found = [channel_audit(run, n_classes=n_classes, n_draws=draws, claimed=1.0) for _ in range(runs)]
            bounds = [one.lower_bound for one in found]
            spread = f"{min(bounds):.3f} to {max(bounds):.3f}"
            yield n_classes, epsilon, f"{draws:,}", spread, f"{sum(one.rejected for one in found)} of {runs}"


def twins(draws: int) -> Iterator[Row]:
    """Every broken mechanism of `labeldp.testing`, and three sound ones, at confidence 0.999999."""
    for broken in broken_subjects():
        subject = broken.subject
        for prior in [None] if subject.priors is None else subject.priors:
            found = door_audit(
                subject.privatize,
                subject.mechanism,
                n_classes=subject.n_classes,
                prior=prior,
                claimed_accuracy=promised(subject.mechanism, prior),
                n_draws=draws,
                confidence=SURE,
            )
            if not found.passed:
                break
        failed = "; ".join(check.name for check in found.checks if not check.passed)
        bound = "" if found.lower_bound is None else f"{found.lower_bound:.2f}"
        yield broken.name, found.claims["epsilon"], bound, failed or "NOT FOUND"
    for mechanism, prior in (
        (labeldp.RandomizedResponse(1.0), None),
        (labeldp.RRTopK(1.0, k=2), np.array([0.4, 0.3, 0.1, 0.1, 0.1])),
        (labeldp.RRWithPrior(1.0), np.array([0.4, 0.3, 0.1, 0.1, 0.1])),
    ):
        found = door_audit(labeldp.privatize, mechanism, n_classes=5, prior=prior, n_draws=draws, confidence=SURE)
        yield f"sound: {mechanism!r}", 1.0, f"{found.lower_bound:.2f}", "none" if found.passed else "FALSE ALARM"


def promised(mechanism: Any, prior: Any) -> float | None:
    if not isinstance(mechanism, OffByOneK):
        return None
    return float(labeldp.RRWithPrior(mechanism.epsilon).channel(prior).expected_accuracy(prior))


def sound_noise(runs: int) -> Iterator[Row]:
    """Randomized response with fresh noise, claimed exactly: how often any of the five families cries wolf."""
    for n_classes in (2, 5):
        run = response(1.0, n_classes)
        found = [channel_audit(run, n_classes=n_classes, n_draws=20_000, claimed=1.0) for _ in range(runs)]
        yield f"randomized response, {n_classes} classes", runs, sum(one.rejected for one in found)


def stale_noise(runs: int) -> Iterator[Row]:
    """The mechanisms of tests/attacks/test_audits.py whose noise is not fresh, at confidence 0.999999."""
    stale = runpy.run_path(str(Path(__file__).parents[1] / "tests" / "attacks" / "test_audits.py"))["STALE"]
    for name, (run, draws) in stale.items():
        begun = time.perf_counter()
        found = [channel_audit(run, n_classes=2, claimed=1.0, n_draws=draws, confidence=SURE) for _ in range(runs)]
        seconds = (time.perf_counter() - begun) / runs
        bounds = [one.lower_bound for one in found]
        yield (
            name,
            f"{draws:,}",
            f"{sum(one.rejected for one in found)} of {runs}",
            f"{min(bounds):.2f}",
            f"{seconds:.1f}",
        )


def pipelines(runs: int) -> Iterator[Row]:
    """Trainings: the claim, and how often and how far the bound goes beyond it."""
    X, y = data()
    public = np.random.default_rng(3).normal(size=(60, 4))

    def staged(prior: Any, epsilon: float) -> Callable[[Any], Any]:
        def train(labels: Any) -> Any:
            model = labeldp.LabelPrivateClassifier(epsilon=epsilon, stages=2, prior=prior, classes=[0, 1])
            return release_scores(model.fit(X, labels).release_)

        return train

    def forgotten(labels: Any) -> Any:
        clusters = np.arange(N) // 2
        counts = np.zeros((N // 2, 2))
        np.add.at(counts, (clusters, labels), 1.0)
        return staged(PublicPrior((counts / counts.sum(axis=1, keepdims=True))[clusters]), 0.5)(labels)

    def pate(labels: Any) -> Any:
        model = PATE(n_teachers=40, epsilon=2.0, delta=1e-6, n_answers=10, classes=[0, 1], threshold=0.1)
        return model_scores(model.fit(X, labels, public), X)

    def dpsgd(labels: Any) -> Any:
        from labeldp.nn import DPSGDClassifier

        model = DPSGDClassifier(epsilon=1.0, delta=1e-6, epochs=2, batch_size=200, classes=[0, 1])
        return model_scores(model.fit(X, labels), X)

    cases = (
        ("multi-stage, uniform prior", staged(None, 1.0), 1.0, 0.0, 0, runs),
        ("multi-stage, cluster prior", staged(ClusterPrior(n_clusters=20), 1.0), 1.0, 0.0, 0, runs),
        ("the cluster prior's cost forgotten", forgotten, 0.5, 0.0, 0, runs),
        ("PATE", pate, 2.0, 1e-6, 1, max(2, runs // 20)),
        # A label replaced is a record removed and one added: epsilon 1 at record level is more than 2 here.
        ("DP-SGD, record level", dpsgd, 2.0, 1e-6, 1, max(2, runs // 20)),
    )
    for name, train, claim, delta, references, times in cases:
        found = [
            canary_audit(train, y, n_classes=2, delta=delta, references=references, claimed=claim) for _ in range(times)
        ]
        bounds = np.array([one.lower_bound for one in found])
        over = f"{int((bounds > claim).sum())} of {times}"
        yield name, claim, delta, over, f"{np.median(bounds):.2f}", f"{bounds.max():.2f}"


def certain(runs: int) -> Iterator[Row]:
    """Multi-stage training once more, at a confidence at which all runs together err with probability 1e-6."""
    X, y = data()

    def train(labels: Any) -> Any:
        model = labeldp.LabelPrivateClassifier(epsilon=1.0, stages=2, classes=[0, 1])
        return release_scores(model.fit(X, labels).release_)

    sure = 1 - 1e-6 / runs
    bounds = [
        canary_audit(train, y, n_classes=2, canaries=N, references=0, confidence=sure).lower_bound for _ in range(runs)
    ]
    yield runs, N, f"1 - {1 - sure:.1e}", f"{max(bounds):.3f}", "yes" if max(bounds) <= 1 else "NO"


def attacks(n: int) -> Iterator[Row]:
    """An attacker's gain over her prior on a release and on a model, beside the most that the claim allows."""
    rng = np.random.default_rng(4)
    labels = rng.integers(0, 4, n)
    for epsilon in (0.5, 1.0, 2.0, 4.0):
        made = labeldp.privatize(labels, labeldp.RandomizedResponse(epsilon, n_classes=4))
        yield "release, 4 classes", epsilon, *attacked(attack_release(made, labels))
    X, y = data()
    other = (X[:, 0] + rng.normal(size=N) > 0).astype(np.int64)
    before = labeldp.LabelPrivateClassifier(epsilon=1.0, classes=[0, 1]).fit(X, other).predict_proba(X)
    for epsilon in (1.0, 4.0):
        model = labeldp.LabelPrivateClassifier(epsilon=epsilon, classes=[0, 1]).fit(X, y)
        found = label_inference(model.predict_proba(X), y, prior=before, claimed=model.guarantee_)
        yield "model, against one of other labels", epsilon, *attacked(found)


def attacked(found: Any) -> Row:
    low, high = found.advantage_interval
    return f"{found.accuracy:.3f}", f"{found.prior_accuracy:.3f}", f"{low:.3f} to {high:.3f}", f"{found.bound:.3f}"


def accuracies(draws: int) -> Iterator[Row]:
    truth = float(labeldp.RandomizedResponse(1.0, n_classes=2).channel().expected_accuracy())
    for claim in (truth, truth + 0.01):
        found = accuracy_audit(response(1.0, 2), prior=[0.5, 0.5], claimed=claim, n_draws=draws)
        yield f"{claim:.4f}", f"{found.upper_bound:.4f}", "rejected" if found.rejected else "stands"


def show(title: str, columns: tuple[str, ...], rows: Iterator[Row]) -> None:
    """Print one table of Markdown, row by row as it is made."""
    begun = time.perf_counter()
    print(f"\n## {title}\n\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}", flush=True)
    for row in rows:
        print(f"| {' | '.join(str(cell) for cell in row)} |", flush=True)
    print(f"\n{time.perf_counter() - begun:.0f} s.", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--noise", action="store_true")
    asked = parser.parse_args()
    quick = asked.quick
    runs, draws = (4, 40_000) if quick else (200, 1_000_000)
    print(f"# Audits in figures\n\n`PYTHONPATH=src python benchmarks/audits.py{' --quick' if quick else ''}`, ", end="")
    print(
        f"{time.strftime('%Y-%m-%d')}, labeldp {labeldp.__version__}, Python {sys.version.split()[0]}, {platform.machine()}."
    )
    print("Confidence 0.95 unless stated. A bound is a lower bound on epsilon; an audit that passes proves nothing.")
    columns = ("mechanism", "draws", "rejected", "smallest bound", "seconds each")
    show("Noise that is not fresh, claimed epsilon 1, confidence 0.999999", columns, stale_noise(2 if quick else 10))
    columns = ("mechanism", "runs", "rejected")
    show("Fresh noise, claimed exactly: at most one in twenty may be rejected", columns, sound_noise(runs))
    if asked.noise:
        return
    show("A null that ignores labels: bound 0", ("what", "runs", "bound 0", "largest bound"), null(runs))
    columns = ("classes", "epsilon", "draws", "lower bound", "claim of 1 rejected")
    show("Randomized response, claimed epsilon 1", columns, sharpness(2 if quick else 10, draws))
    columns = ("mechanism", "claimed epsilon", "lower bound", "checks that failed")
    show("Broken mechanisms, each under the priors that tempt it", columns, twins(150_000 if quick else 200_000))
    columns = ("pipeline", "claimed epsilon", "delta", "bound above the claim", "median bound", "largest bound")
    show("Trainings, 1,000 canaries in one run", columns, pipelines(runs))
    columns = ("runs", "canaries", "confidence", "largest bound", "never above 1")
    show("Multi-stage training at epsilon 1, so sure that all runs count", columns, certain(runs))
    columns = ("attacked", "epsilon", "accuracy", "without the release", "advantage (95 %)", "allowed")
    show("Label inference", columns, attacks(20_000 if quick else 200_000))
    show("Accuracy", ("claimed", "at most", "verdict"), accuracies(draws))


if __name__ == "__main__":
    main()
