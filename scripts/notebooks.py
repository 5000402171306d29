"""Each tutorial as an executed Jupyter notebook: the Markdown page is the source, the notebook is made from it.

    python scripts/notebooks.py             # make and execute all of them: what `make notebooks` does
    python scripts/notebooks.py owner       # one of them
    python scripts/notebooks.py --prose     # take over prose where code did not change, keeping what cells printed
    python scripts/notebooks.py --check     # say which are behind their page; nothing is executed

docs/tutorials/NAME.md becomes docs/notebooks/NAME.ipynb. Prose becomes Markdown cells, a ``python`` block a code cell, a ``console``
block a cell of bash. A ``text`` block right after a block is what the block prints: it is not copied, the cell's own output
stands there, and it must match the page (``...`` stands for anything, as in doctest). Every notebook begins in an empty folder,
as the tests of pages do, so that it can be run twice.

A notebook is up to date if its cells are those of its page, and what its cells printed matches the page. Executing it again
would print other numbers where noise is fresh, and need not be done for that.
"""

from __future__ import annotations

import argparse
import doctest
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
TUTORIALS, NOTEBOOKS = ROOT / "docs" / "tutorials", ROOT / "docs" / "notebooks"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SAME = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
#: Seconds for one cell, on a busy machine.
PATIENCE = 600
#: Bytes of a notebook: outputs are small.
MOST_BYTES = 100_000
BEGIN = """# An empty folder for the files of this page; commands print plain text.
import os, tempfile

os.chdir(tempfile.mkdtemp())
os.environ.update(COLUMNS="100", FORCE_COLOR="", CLICOLOR_FORCE="")"""
#: The line of a page that leads to its notebook; the notebook does without it.
LINK = re.compile(r"^\*This page as an executed notebook:.*\n\n?", re.MULTILINE)
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


class Part(NamedTuple):
    """A piece of a page: its kind (`markdown`, or the language of a block), its text, what it prints, and its line."""

    kind: str
    text: str
    expected: str | None
    line: int


def split_page(text: str) -> list[Part]:
    """Return the pieces of a page in order; outputs are put to the blocks before them.

    >>> [part.kind for part in split_page("A.\\n\\n```python\\n1\\n```\\n\\n```text\\n```\\n\\nB.\\n")]
    ['markdown', 'python', 'markdown']
    """
    parts: list[Part] = []
    done = 0
    for match in FENCE.finditer(text):
        between = text[done : match.start()]
        line = text.count("\n", 0, match.start()) + 1
        runs = bool(parts) and parts[-1].kind in {"python", "console"}
        if match[1] == "text" and runs and not between.strip():
            parts[-1] = parts[-1]._replace(expected=match[2])
        else:
            if between.strip():
                parts.append(Part("markdown", between.strip("\n"), None, text.count("\n", 0, done) + 1))
            parts.append(Part(match[1], match[2], None, line))
        done = match.end()
    if text[done:].strip():
        parts.append(Part("markdown", text[done:].strip("\n"), None, text.count("\n", 0, done) + 1))
    return parts


def make_cells(name: str) -> list[tuple[str, str, str | None]]:
    """Return (kind, source, what it must print) of each cell of a page's notebook."""
    page = LINK.sub("", (TUTORIALS / f"{name}.md").read_text(encoding="utf-8"))
    made = f"*Made from docs/tutorials/{name}.md by `make notebooks`; change the page, not the notebook.*"
    title, *rest = split_page(page)
    heading, _, opening = title.text.partition("\n")
    cells: list[tuple[str, str, str | None]] = [
        ("markdown", f"{heading}\n\n{made}\n{opening}".strip(), None),
        ("code", BEGIN, None),
    ]
    for part in rest:
        if part.kind == "python":
            cells.append(("code", part.text.strip("\n"), part.expected))
        elif part.kind == "console":
            lines = [line[2:] for line in part.text.splitlines() if line.startswith("$ ")]
            cells.append(("code", "\n".join(["%%bash", "set -e", *lines]), part.expected))
        else:
            fenced = part.text if part.kind == "markdown" else f"```{part.kind}\n{part.text}```"
            cells.append(("markdown", fenced, None))
    return cells


def make_notebook(name: str) -> Any:
    """Return the notebook of a page, not executed."""
    from nbformat import v4

    cells = []
    for number, (kind, source, _) in enumerate(make_cells(name)):
        make = v4.new_markdown_cell if kind == "markdown" else v4.new_code_cell
        cells.append(make(source, id=f"cell-{number}"))
    return v4.new_notebook(cells=cells, metadata=METADATA)


def execute(notebook: Any) -> None:
    """Run a notebook's cells in an empty folder, and keep nothing of this machine or of this hour in it."""
    from nbclient import NotebookClient

    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # commands of this environment come first
    here = {"PATH": path, "PYTHONWARNINGS": "ignore"}
    before = dict(os.environ)
    with tempfile.TemporaryDirectory() as folder:
        try:
            os.environ.update(here)
            NotebookClient(
                notebook, timeout=PATIENCE, coalesce_streams=True, resources={"metadata": {"path": folder}}
            ).execute()
        finally:
            os.environ.clear()
            os.environ.update(before)
    notebook.metadata = METADATA
    for cell in notebook.cells:
        cell.metadata = {}
        if "outputs" in cell:
            cell.outputs = leave_out_folders(cell.outputs)


def leave_out_folders(value: Any) -> Any:
    """Return outputs in which files of the empty folder are called by their names alone."""
    if isinstance(value, str):
        return re.sub(re.escape(tempfile.gettempdir()) + r"/tmp\w+/", "", value)
    if isinstance(value, list):
        return [leave_out_folders(one) for one in value]
    return (
        type(value)({key: leave_out_folders(one) for key, one in value.items()}) if isinstance(value, dict) else value
    )


def printed(cell: Any) -> str:
    """Return what a cell wrote to its standard output."""
    return "".join(out["text"] for out in cell.get("outputs", ()) if out.get("name") == "stdout")


def find_faults(name: str, notebook: Any) -> list[str]:
    """Return what is wrong with an executed notebook: cells that are not the page's, errors, other outputs, this machine's paths."""
    wanted = make_cells(name)
    got = [(cell["cell_type"], cell["source"]) for cell in notebook.cells]
    if got != [(kind, source) for kind, source, _ in wanted]:
        return [f"{name}: its cells are not those of docs/tutorials/{name}.md; run `make notebooks`"]
    faults = []
    for cell, (kind, source, expected) in zip(notebook.cells, wanted, strict=True):
        where = f"{name}, `{source.splitlines()[0]} ...`"
        outputs = cell.get("outputs", [])
        if kind == "code" and cell["execution_count"] is None:
            faults.append(f"{where}: was not executed")
        if any(out["output_type"] == "error" for out in outputs):
            faults.append(f"{where}: ended in an error")
        if expected is not None and not doctest.OutputChecker().check_output(expected, printed(cell), SAME):
            faults.append(f"{where}: printed\n{printed(cell)}and the page says\n{expected}")
        if re.search(r"/(tmp|home|root|work|usr|opt)/", str(outputs)):
            faults.append(f"{where}: a path of this machine is in its output")
    return faults


def take_over_prose(name: str, old: Any) -> Any:
    """Return the notebook of a page as it is now with the outputs of an older one, if their code is the same."""
    new = make_notebook(name)
    ran = [cell for cell in old.cells if cell["cell_type"] == "code"]
    code = [cell for cell in new.cells if cell["cell_type"] == "code"]
    if [cell["source"] for cell in ran] != [cell["source"] for cell in code]:
        sys.exit(f"{name}: its code has changed; run `python scripts/notebooks.py {name}`")
    for one, other in zip(code, ran, strict=True):
        one.outputs, one.execution_count = other.outputs, other.execution_count
    return new


def names() -> list[str]:
    """Return the names of all tutorials."""
    return sorted(path.stem for path in TUTORIALS.glob("*.md"))


def read(name: str) -> Any:
    """Return a notebook as it is on disk; one without cells where there is none."""
    import nbformat

    path = NOTEBOOKS / f"{name}.ipynb"
    return nbformat.read(path, as_version=4) if path.exists() else nbformat.v4.new_notebook()


def write(name: str, notebook: Any) -> None:
    """Check a notebook's layout and write it."""
    import nbformat

    nbformat.validate(notebook)
    NOTEBOOKS.mkdir(exist_ok=True)
    nbformat.write(notebook, NOTEBOOKS / f"{name}.ipynb")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="tutorials; all if left out")
    parser.add_argument("--prose", action="store_true", help="execute nothing, and take over prose")
    parser.add_argument("--check", action="store_true", help="execute nothing, and say what is behind")
    arguments = parser.parse_args()
    faults = []
    for name in arguments.names or names():
        if arguments.check:
            faults += find_faults(name, read(name))
            continue
        notebook = take_over_prose(name, read(name)) if arguments.prose else make_notebook(name)
        if not arguments.prose:
            execute(notebook)
        found = find_faults(name, notebook)
        faults += found
        if not found:
            write(name, notebook)
            print(f"{name}: {len(notebook.cells)} cells, {(NOTEBOOKS / f'{name}.ipynb').stat().st_size:,} bytes")
    if faults:
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main()
