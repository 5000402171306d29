"""Run a study by its name and leave JSON, plots and a page behind.

>>> names()
('cluster-response', 'first-model', 'prior-response')

Design notes. The page of a study is static by default: a few kilobytes, so that results can be committed and compared.
Files are written only after the run has ended well. A page can be made again from its `result.json` (`write_result`).
"""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

from labeldp._validate import check_integer
from labeldp.errors import invalid, nearest
from labeldp.report import page, plot_file, write_page
from labeldp.studies._pages import sections
from labeldp.studies._study import Progress, Study, StudyResult

Where = str | os.PathLike[str] | None


def _studies() -> dict[str, type[Study]]:
    """The studies by name; imported late, since each brings its learners along."""
    from labeldp.studies.cluster_response import ClusterResponse
    from labeldp.studies.first_model import FirstModel
    from labeldp.studies.prior_response import PriorResponse

    return {study.name: study for study in (ClusterResponse, FirstModel, PriorResponse)}


def names() -> tuple[str, ...]:
    """Return the names that `run` knows."""
    return tuple(sorted(_studies()))


def study(name: str) -> Study:
    """Return a study by its name: its title, paper and measure, without running it."""
    known = _studies()
    if name not in known:
        raise invalid("study", "name", "be a known study", got=name, fix=nearest(name, sorted(known)))
    return known[name]()


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
    page. Returns the result, whose `page` is where the page is.
    """
    chosen = study(name)
    if seeds is not None:
        check_integer("study", "seeds", seeds, least=1)
    data = None if directory is None else Path(directory)
    result = chosen.run(quick=quick, seeds=seeds, directory=data, progress=progress)
    target = Path("labeldp-study") / name if out_dir is None else Path(out_dir)
    return dataclasses.replace(result, page=write_result(result, target, interactive=interactive))


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
