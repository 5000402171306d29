"""Run a study by its name and leave JSON, plots and a page behind.

>>> names()[:3]
('adult-learners', 'cluster-response', 'excess-risk')

Design notes. The page of a study is static by default: a few kilobytes, so that results can be committed and compared.
Files are written only after the run has ended well. A page can be made again from its `result.json` (`write_result`).
"""

from __future__ import annotations

import dataclasses
import json
import os
from importlib import import_module
from pathlib import Path

from labeldp.errors import invalid, nearest
from labeldp.report import page, plot_file, write_page
from labeldp.validate import check_integer
from studies.kept import Kept
from studies.pages import sections
from studies.study import Progress, Study, StudyResult

Where = str | os.PathLike[str] | None


#: Where each study lives. A study is imported when it is asked for: it brings its learners along.
PLACES = {
    "adult-learners": "adult_learners:AdultLearners",
    "cluster-response": "cluster_response:ClusterResponse",
    "excess-risk": "excess_risk:ExcessRisk",
    "first-model": "first_model:FirstModel",
    "images-cifar10": "images:CIFAR10",
    "images-fashion-mnist": "images:FashionMNIST",
    "images-mnist": "images:MNIST",
    "multilabel-pate": "multilabel_pate:MultiLabelPate",
    "prior-response": "prior_response:PriorResponse",
    "ratings": "ratings:Ratings",
    "stage-settings": "stage_settings:StageSettings",
    "top-k": "top_k:TopK",
}


def names() -> tuple[str, ...]:
    """Return the names that `run` knows."""
    return tuple(sorted(PLACES))


def study(name: str, *, kept: Kept | None = None) -> Study:
    """Return a study by its name: its title, paper and measure, without running it."""
    if name not in PLACES:
        raise invalid("study", "name", "be a known study", got=name, fix=nearest(name, names()))
    module, _, kind = PLACES[name].partition(":")
    found: Study = getattr(import_module(f"studies.{module}"), kind)(kept=kept)
    return found


def run(
    name: str,
    *,
    quick: bool = False,
    seeds: int | None = None,
    out_dir: Where = None,
    directory: Where = None,
    progress: Progress | None = None,
    interactive: bool = False,
) -> StudyResult:
    """Run a study and write `result.json`, `plot-1.svg`, ... and `index.html` into `out_dir`.

    `quick` is a small version that shows that it runs; its numbers mean nothing. `seeds` is how many seeds to use, 0, 1,
    ...; `out_dir` is ``labeldp-study/NAME`` in the current directory unless given; `directory` holds the data sets (else
    LABELDP_DATA); `progress` is called with the share done and what is being done; `interactive` embeds Plotly in the
    page. A study that keeps what it measures leaves it in `partial.jsonl` until it has ended: called again after a crash,
    it goes on from there. Returns the result, whose `page` is where the page is.
    """
    target = Path("labeldp-study") / name if out_dir is None else Path(out_dir)
    chosen = study(name, kept=Kept(target / f"partial{'-quick' * quick}.jsonl"))
    if seeds is not None:
        check_integer("study", "seeds", seeds, least=1)
    data = None if directory is None else Path(directory)
    result = chosen.run(quick=quick, seeds=seeds, directory=data, progress=progress)
    made = write_result(result, target, interactive=interactive)
    chosen.kept.forget()
    return dataclasses.replace(result, page=made)


def write_result(result: StudyResult, directory: str | os.PathLike[str], *, interactive: bool = False) -> Path:
    """Write JSON, plots and page of a result, and return the path of the page."""
    target = Path(directory)
    plots = study(result.name).plots(result)
    text = json.dumps(result.to_json(), indent=1, allow_nan=False) + "\n"
    write_page(target / "result.json", text)
    for number, plot in enumerate(plots, start=1):
        write_page(target / f"plot-{number}.svg", plot_file(plot))
    made = page(
        result.title,
        sections=sections(result, plots),
        lead=f"Study {result.name}: {result.measure}.",
        seeded=result.seeded,
        interactive=interactive,
    )
    return write_page(target / "index.html", made)
