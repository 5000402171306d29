"""Studies: experiments of papers, run by name, with paper / ours / difference, seeds, spread and trust.

>>> from studies import names
>>> names()[:3]
('adult-learners', 'cluster-response', 'excess-risk')

Each study is a class in a file of its own (`first_model.py`, `prior_response.py`); `_run.py` knows them by name. Long
results are committed under studies/results/ with the command that made them. `demo.py` is the demo.
"""

from __future__ import annotations

from studies.pages import rich_table
from studies.run import names, run, study, write_result
from studies.study import Progress, Study, StudyResult, StudyRow, read_result

__all__ = [
    "Progress",
    "Study",
    "StudyResult",
    "StudyRow",
    "names",
    "read_result",
    "rich_table",
    "run",
    "study",
    "write_result",
]
