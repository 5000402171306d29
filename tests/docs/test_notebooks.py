"""Every tutorial has an executed notebook that is up to date with it, and one of them is executed anew.

What the code of the pages does is tested in test_pages.py; here only the way from page to notebook is. `make notebooks` makes and
executes all of them.
"""

from __future__ import annotations

import copy
import shutil

import pytest

pytest.importorskip("nbformat")
pytest.importorskip("nbclient")

from scripts import notebooks

#: The page with the least to run.
SHORTEST = "researcher"


@pytest.mark.parametrize("name", notebooks.names())
def test_a_notebook_is_that_of_its_page(name):
    found = notebooks.read(name)
    assert notebooks.find_faults(name, found) == []
    assert (notebooks.NOTEBOOKS / f"{name}.ipynb").stat().st_size < notebooks.MOST_BYTES
    page = (notebooks.TUTORIALS / f"{name}.md").read_text()
    assert f"(../notebooks/{name}.ipynb)" in page
    assert f"({name}.ipynb)" in (notebooks.NOTEBOOKS / "index.md").read_text()


def test_there_is_no_notebook_without_a_page():
    assert sorted(path.stem for path in notebooks.NOTEBOOKS.glob("*.ipynb")) == notebooks.names()


def test_a_notebook_that_is_behind_is_caught():
    """The broken twins: a cell that differs from the page, another output, an error, one not run, a path of a machine."""
    good = notebooks.read(SHORTEST)
    told = [number for number, (_, _, expected) in enumerate(notebooks.make_cells(SHORTEST)) if expected]

    def faults(change) -> str:
        broken = copy.deepcopy(good)
        change(broken.cells)
        return " ".join(notebooks.find_faults(SHORTEST, broken))

    stream = {"output_type": "stream", "name": "stdout", "text": "something else\n"}
    assert "not those of" in faults(lambda cells: cells[2].update(source="print(1)"))
    assert "printed" in faults(lambda cells: cells[told[0]].update(outputs=[stream]))
    assert "not executed" in faults(lambda cells: cells[1].update(execution_count=None))
    assert "an error" in faults(lambda cells: cells[1].update(outputs=[{"output_type": "error"}]))
    path = {**stream, "text": "in /opt/x/y"}
    assert "path of this machine" in faults(lambda cells: cells[1].update(outputs=[path]))
    assert faults(lambda cells: None) == ""


def test_prose_is_taken_over_and_code_is_not():
    old = notebooks.read(SHORTEST)
    old.cells[0]["source"] = "# Another title"
    new = notebooks.take_over_prose(SHORTEST, old)
    assert notebooks.find_faults(SHORTEST, new) == []
    old.cells[1]["source"] = "print(1)"
    with pytest.raises(SystemExit, match="code has changed"):
        notebooks.take_over_prose(SHORTEST, old)


def test_a_page_is_made_and_executed_anew():
    if shutil.which("bash") is None:
        pytest.skip("cells of bash need bash")
    made = notebooks.make_notebook(SHORTEST)
    notebooks.execute(made)
    assert notebooks.find_faults(SHORTEST, made) == []
