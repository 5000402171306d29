"""The study `paper-stages`: every case runs and keeps its promise, stage 1 is the one that was trained, words follow rows."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the study trains networks: install labeldp[torch]")

from labeldp.learn.draws import mix_with_uniform  # noqa: E402 - after the skip
from labeldp.mechanisms import RRWithPrior  # noqa: E402
from labeldp.priors import tempered  # noqa: E402
from studies import StudyRow, images  # noqa: E402
from studies import paper_figures as figures  # noqa: E402
from studies import paper_stages as subject  # noqa: E402


@pytest.fixture
def study(monkeypatch) -> subject.PaperStages:
    """The study on ten far-apart classes in two views; the last of 900 rows are test rows."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 10, 900)
    centres = 3.0 * rng.normal(size=(10, 12))
    X = (centres[y][:, None, :] + 0.3 * rng.normal(size=(900, 2, 12))).astype(np.float32)
    monkeypatch.setattr(images, "FINAL", {"hidden": 64, "epochs": 6})  # the last fit is as short as the others
    made = subject.PaperStages()
    made.sets.update(dict.fromkeys(subject.OPEN, images.Images(X[:600], y[:600], X[600:], y[600:], 1.0)))
    return made


CASES = [
    subject.Cell(data="mnist", setting="LP-1ST", epsilon=8.0),
    subject.Cell(data="cifar10", setting="auto, no one", epsilon=8.0),
    subject.Stages(count=3, epsilon=8.0),
    subject.PriorAt(clusters=subject.PRIOR_CLUSTERS, epsilon=8.0),
    subject.Votes(clusters=20),
    subject.Passes(passes=2),
    subject.list_sweeps()[3],
    subject.list_sweeps()[-2],
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_case_keeps_its_promise_and_says_whom_it_trusts(study, case):
    found = study.run_case(case, 0)
    asked = max(getattr(case, "epsilon", subject.EPSILON), *subject.COUNT_EPSILONS)
    counted = isinstance(case, subject.Votes) or getattr(case, "clusters", 0) > 0
    for one in found:
        assert 0.0 < one.epsilon <= asked
        assert one.trust == ("a curator" if counted else "no one")
    # Chance is 10%; the classes are ten standard deviations apart, and the last row is that of the largest budget.
    assert found[-1].value > 40.0


def test_stage_1_that_is_looked_at_is_the_one_that_chose_the_questions(study):
    """What `fit_release` on the rows of stage 1 believes of the other rows gives the channel that stage 2 used."""
    plan = subject.Plan(epsilon=2.0, temperature=0.25)
    release = study.fit(plan, 0).release_
    rows, later = np.flatnonzero(release.stage == 0), np.flatnonzero(release.stage == 1)
    X, used = study.images("cifar10").X, release.channel.take(later)

    def share_equal(seed: int) -> float:
        first = plan.make(seed=seed).fit_release(X[rows], release.take(rows))
        prior = mix_with_uniform(tempered(first.predict_proba(X[later]), plan.temperature))
        made = RRWithPrior(plan.epsilon).channel(prior)
        return float(np.mean(made.expected_accuracy(prior) == used.expected_accuracy(prior)))

    assert share_equal(0) == 1.0
    assert share_equal(1) < 1.0  # other first weights, other beliefs


def test_a_fit_that_two_figures_share_is_made_once(study, monkeypatch):
    study.run_case(subject.Stages(count=2, epsilon=2.0), 0)
    monkeypatch.setattr(study, "fit", lambda *_: pytest.fail("it was fitted again"))
    plan = subject.Plan(epsilon=2.0)
    assert study.fit_plan(plan, 0)["k"] > 0


def test_settings_of_stages_reach_the_network():
    plan = subject.Plan(epsilon=2.0, mixups=(8.0, 1.0), passes=(5, 2))
    params = plan.make(seed=0).stage_params
    assert params == [{"mixup": 8.0, "epochs": 5}, {"mixup": 1.0, "epochs": 2}]
    assert (
        plan.make(seed=0).mechanism == images.make_stages(images.Case(setting="LP-2ST", epsilon=2.0), seed=0).mechanism
    )


def row(
    table: str, setting: str, value: float, epsilon: float = 2.0, paper: float | None = None, trust: str = "no one"
):
    return StudyRow(table=table, setting=setting, epsilon=epsilon, trust=trust, values=(value,), paper=paper)


ROWS = [
    row("Table 1, cifar10", "LP-1ST", 70.0, 3.0, paper=89.89),
    *(row(figures.FIGURE_1A, f"{count} stages", value) for count, value in ((2, 60.0), (3, 61.5))),
    row(figures.FIGURE_1B, "uniform prior", 50.0, 1.0),
    row(figures.FIGURE_1B, "100 clusters counted at 0.05", 58.25, 1.0, trust="a curator"),
    row(figures.FIGURE_2, "20 clusters", 40.0, 0.05),
    row(figures.FIGURE_2, "50 clusters", 45.0, 0.05),
    *(row(figures.FIGURE_3, f"LP-1ST, {count} passes", 50.0 + count) for count in (5, 12)),
    row(figures.FIGURE_4A, "share 0.5, temperature 0.25", 66.0),
    row(figures.FIGURE_4A, "share 0.8, temperature 0.25", 64.0),
    row(figures.FIGURE_5, "share 0.5, temperature 0.25", 81.0),
    row(figures.FIGURE_5, "share 0.8, temperature 0.25", 83.0),
]


def test_words_follow_rows():
    said = " ".join(subject.PaperStages().findings(ROWS))
    assert "Table 1, cifar10, epsilon 3: LP-1ST 70.00, paper 89.89." in said
    assert "60.00 in 2 stages, 61.50 in 3 stages; each stage more: +1.50." in said
    assert "+8.25 at 1" in said
    assert "50 clusters at 0.05 (45.0)" in said
    assert "(5, 12): LP-1ST 55.0, 62.0." in said
    assert "2 cells: best share 0.5, temperature 0.25 66.00, worst share 0.8, temperature 0.25 64.00." in said
    assert "80 to 85: 65.00 (2 cells)" in said


def test_a_part_of_the_rows_has_its_words_and_drawings():
    study = subject.PaperStages()
    for count in range(len(ROWS) + 1):
        assert len(study.findings(ROWS[:count])) >= 2
        study.plots(ROWS[:count])
    titles = [plot.title for plot in study.plots(ROWS)]
    assert len(titles) == 6
    sweep = next(plot for plot in study.plots(ROWS) if "share and temperature" in plot.title)
    assert sweep.series[0].x == (0.5, 0.8)
    assert sweep.series[0].y == (66.0, 64.0)


def test_a_quick_run_has_a_case_of_each_kind():
    kinds = {type(case) for case in subject.PaperStages(quick=True).cases()}
    assert kinds == {type(case) for case in subject.PaperStages().cases()}
    whole = [case.name for case in subject.PaperStages().cases()]
    assert len(set(whole)) == len(whole)
