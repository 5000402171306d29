"""Studies: experiments of papers, run by name, with paper / ours / difference, seeds, spread and trust.

>>> from labeldp.studies import names
>>> names()[:3]
('adult-learners', 'cluster-response', 'excess-risk')

Each study is a class in a file of its own (`first_model.py`, `prior_response.py`); `_run.py` knows them by name. Long
results are committed under studies/results/ with the command that made them. `demo.py` is the demo.
"""

from labeldp.studies._pages import rich_table
from labeldp.studies._run import names, run, study, write_result
from labeldp.studies._study import Progress, Study, StudyResult, StudyRow, read_result

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
