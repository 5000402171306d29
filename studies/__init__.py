"""Studies: experiments of papers, run by name, with paper / ours / difference, seeds, spread and trust.

>>> from studies import names
>>> names()[:3]
('adult-learners', 'cluster-bounds', 'cluster-response')

Each study is a class in a file of its own. `study.py` is the template that they fill in, `run.py` finds them by name and
writes their results, and `python -m studies NAME` runs one from the root of a clone. They are not part of the installed
package. Long results are committed under studies/results/ with the command that made them.
"""

from __future__ import annotations

from studies.run import (
    add_measured,
    find_study,
    measure_part,
    names,
    results_readme,
    retell,
    rich_table,
    run,
    write_measured,
    write_result,
)
from studies.study import Measurement, Progress, Study, StudyResult, StudyRow, read_result

__all__ = [
    "Measurement",
    "Progress",
    "Study",
    "StudyResult",
    "StudyRow",
    "add_measured",
    "find_study",
    "measure_part",
    "names",
    "read_result",
    "results_readme",
    "retell",
    "rich_table",
    "run",
    "write_measured",
    "write_result",
]
