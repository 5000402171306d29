"""What a release goes out with: one version everywhere, and scripts that say so when it is not."""

from __future__ import annotations

import re
import runpy
import subprocess
from pathlib import Path

import pytest

import labeldp

tomllib = pytest.importorskip("tomllib", reason="Python 3.10 reads no TOML")
ROOT = Path(__file__).resolve().parent.parent
DIST = runpy.run_path(str(ROOT / "scripts" / "dist.py"))


def test_there_is_one_version():
    """The package has it; the build reads it there, and the changelog and the citation agree."""
    assert DIST["read_version"]() == DIST["read_version"](f"v{labeldp.__version__}") == labeldp.__version__
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in project["project"]
    assert project["tool"]["hatch"]["version"]["path"] == "src/labeldp/__init__.py"
    assert re.fullmatch(r"\d+\.\d+\.\d+", labeldp.__version__)


def test_a_tag_of_another_version_is_refused():
    with pytest.raises(AssertionError, match="versions differ"):
        DIST["read_version"]("v99.0.0")


def test_a_version_without_a_date_is_not_released():
    """An older version that has one does not help."""
    older = "\n\n## 0.9.0 (2026-01-31)\n"
    DIST["check_date"]("# Changelog\n\n## 1.0.0 (2026-02-28)" + older)
    with pytest.raises(AssertionError, match="has no date"):
        DIST["check_date"]("# Changelog\n\n## 1.0.0 (unreleased)" + older)


@pytest.mark.parametrize(
    ("name", "text"),
    [("src/labeldp/demo.py", True), ("Makefile", True), ("tests/data/movies.csv", False), ("docs/ratings.npz", False)],
)
def test_data_is_told_from_text(name, text):
    assert DIST["is_text"](name) is text


def test_no_committed_file_is_unknown_data():
    """What `make dist` would refuse to ship is found here, in a second."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a clone: there is no list of committed files")
    assert DIST["find_data"](f"/{name}" for name in listed.stdout.splitlines()) == []
    assert DIST["find_data"](["/docs/ratings.npz"]) == ["/docs/ratings.npz"]


def test_every_extra_has_a_use_that_is_tried():
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    assert set(DIST["USES"]) == extras - {"all", "docs", "dev"}
