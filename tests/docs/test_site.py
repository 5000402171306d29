"""The documentation as a whole: every public name is in the reference, and a page that was opened from disk can be searched."""

from __future__ import annotations

import ast
import importlib
import logging
import re
from pathlib import Path

import griffe
import pytest

from scripts.browser import Tab

ROOT = Path(__file__).resolve().parents[2]
PACKAGE, API = ROOT / "src" / "labeldp", ROOT / "docs" / "api"
ENTRY = re.compile(r"^::: labeldp\.([\w.]+)$", re.MULTILINE)


def listed_names(path: Path) -> list[str]:
    """Return what a file has in `__all__`; an empty list if it has none."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__":
            return [str(name) for name in ast.literal_eval(node.value)]
    return []


def documented_names() -> set[str]:
    """Return the names that pages of the reference show: one by one, or all of a module."""
    found: set[str] = set()
    for page in API.glob("*.md"):
        for entry in ENTRY.findall(page.read_text(encoding="utf-8")):
            place = PACKAGE.joinpath(*entry.split("."))
            module = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
            found |= shown_names(module) if module.exists() else {entry.rsplit(".", 1)[-1]}
    return found


def shown_names(module: Path) -> set[str]:
    """Return what the reference shows of a module: its list, or else what it defines without an underscore."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    defined = {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    return set(listed_names(module)) or {name for name in defined if not name.startswith("_")}


def test_every_public_name_is_in_the_reference():
    documented = documented_names()
    rooms = {path.parent.relative_to(PACKAGE).as_posix(): listed_names(path) for path in PACKAGE.rglob("__init__.py")}
    modules = {
        name
        for path in PACKAGE.rglob("*.py")
        for name in (path.parent.name if path.name == "__init__.py" else path.stem,)
    }
    missing = [f"{room}: {name}" for room, names in rooms.items() for name in names if name not in documented | modules]
    assert not missing, missing
    assert sum(len(names) for names in rooms.values()) > 200  # the check reads lists that are there


def test_no_sentence_of_a_docstring_is_taken_for_a_parameter(caplog: pytest.LogCaptureFixture):
    def read(thing: griffe.Object) -> int:
        if thing.docstring is not None:
            thing.docstring.parse("numpy")
        return (thing.docstring is not None) + sum(read(part) for part in thing.members.values() if not part.is_alias)  # type: ignore[arg-type]

    with caplog.at_level(logging.WARNING, logger="griffe"):
        package = griffe.load("labeldp", search_paths=[ROOT / "src"])
        assert read(package) > 4_000  # the check reads docstrings that are there
        assert not caplog.messages
        broken = griffe.Docstring(
            "Add.\n\nParameters\n----------\nx : int\n    One.\n\nThat is all.", parent=package["__version__"]
        )
        broken.parse("numpy")
        assert caplog.messages  # a paragraph after the last parameter needs a heading, as ``Notes``


def test_each_mechanism_has_a_picture_and_a_heading():
    page = (ROOT / "docs" / "mechanisms.md").read_text(encoding="utf-8")
    names = [name for name in listed_names(PACKAGE / "mechanisms" / "__init__.py") if name.endswith(("Response", "RR"))]
    names += ["RRTopK", "RRWithPrior"]
    assert len(names) >= 9
    for name in names:
        assert f"\n## {name}\n" in page, name
        assert f"pictures/mechanism-{name}.svg" in page, name


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda path: path.stem)
def test_pictures_of_a_page_exist_and_are_described(page: Path):
    text = page.read_text(encoding="utf-8")
    for image in re.findall(r"<img [^>]*>", text):
        source = re.search(r'src="([^"#]+)', image)
        assert source is not None, image
        assert (page.parent / source[1]).is_file(), image
        assert re.search(r'alt="[^"]{20,}"', image), image


def test_examples_of_docstrings_are_blocks_of_code():
    pytest.importorskip("griffe")
    fence = importlib.import_module("scripts.griffe_doctests").fence
    text = "Add.\n\n    >>> 1 + 1\n    2\n\nEnd.\n\n```python\n>>> kept\n```\n\n>>> 3\n3"
    made = fence(text)
    assert "    ```pycon\n    >>> 1 + 1\n    2\n    ```\n\nEnd." in made
    assert "```python\n>>> kept\n```" in made
    assert made.endswith("```pycon\n>>> 3\n3\n```")
    assert fence("No example.") == "No example."


def test_a_link_to_a_study_waits_for_its_result(tmp_path: Path):
    pytest.importorskip("mkdocs")
    unlink_studies = importlib.import_module("scripts.mkdocs_hooks").unlink_studies
    (tmp_path / "README.md").write_text("| study |\n|---|\n| `slow` | ? | nothing |\n| `done` | ? | nothing |\n")
    page = "[a](studies/slow.html), [b](../studies/done.html), [c](studies/none.html)"
    (tmp_path / "done").mkdir()
    (tmp_path / "done" / "index.html").touch()
    assert unlink_studies(page, tmp_path) == "a, [b](../studies/done.html), [c](studies/none.html)"
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow" / "index.html").touch()
    assert unlink_studies(page, tmp_path) == page


def test_pages_opened_from_disk_can_be_searched(tab: Tab, tmp_path: Path):
    """The stand-in for a Worker does what one does: the script runs apart from the page, and messages go both ways."""
    (tmp_path / "worker.js").write_text("addEventListener('message', e => postMessage([e.data[0] * 2, typeof found]))")
    script = (ROOT / "docs" / "iframe-worker.js").read_text(encoding="utf-8")
    (tmp_path / "page.html").write_text(
        f"<!doctype html><body><script>{script}</script><script>var found = null; const worker = new Worker('worker.js');"
        "worker.addEventListener('message', e => { found = e.data; }); worker.postMessage([21]);</script>"
    )
    tab.open((tmp_path / "page.html").as_uri())
    tab.until("found !== null")
    assert tab.value("found") == [42, "undefined"]
    assert tab.complaints() == []
