"""What mkdocs does to these pages beside its plugins: the version at the foot of each, the studies beside them, the room of wide
tables, and where long names of code may break.

mkdocs calls the functions by their names (mkdocs.yml, `hooks`).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

VERSION = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)
CELL = re.compile(r"<t([dh])\b([^>]*)>(.*?)</t\1>", re.DOTALL)
CODE = re.compile(r"<code>([^<]*)</code>")
#: Names of code in cells of tables are not broken (docs/style.css); longer ones may be, after these signs.
LONGEST, SIGNS = 34, re.compile(r"(::|/|_(?=[^_])|\((?=.))")
#: An option of a command, which browsers would break after its dashes.
OPTION = re.compile(r"(?<![\w-])--?[a-zA-Z][\w-]*")
#: A link to the page of a study.
STUDY = re.compile(r"\[([^\]]+)\]\((?:\.\./)?studies/([\w-]+)\.html\)")
#: Pages whose tables have many columns.
WIDE = {"papers.md"}
WHOLE = r'<span class="whole">\g<0></span>'


def on_config(config: Any) -> Any:
    """Say at the foot of every page which version it is about."""
    source = Path(config.config_file_path).parent / "src" / "labeldp" / "__init__.py"
    found = VERSION.search(source.read_text(encoding="utf-8"))
    if found is None:
        raise ValueError(f"{source} has no line `__version__ = ...`.")
    config.copyright = f"These pages are of labeldp {found[1]}, built from the same commit as the sources beside them."
    return config


def on_files(files: Any, config: Any) -> Any:
    """Put the page of each committed study beside the pages, so that they can link it: studies/NAME.html."""
    results = Path(config.config_file_path).parent / "studies" / "results"
    for page in sorted(results.glob("*/index.html")):
        files.append(File.generated(config, f"studies/{page.parent.name}.html", abs_src_path=str(page)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Give pages of wide tables the room of the list of contents, and leave links to studies without a result as words.

    The first tables of a wide page have the links that its list of contents would have.
    """
    if page.file.src_uri in WIDE:
        page.meta.setdefault("hide", ["toc"])
    return unlink_studies(markdown, Path(config.config_file_path).parent / "studies" / "results")


def unlink_studies(markdown: str, results: Path) -> str:
    """Return a page whose links to studies without a committed result are words: they become links when the result comes.

    A study is one that the README of the results lists. Any other name is left as it is, and mkdocs complains of it.
    """
    listed = set(re.findall(r"^\| `([\w-]+)` \|", (results / "README.md").read_text(encoding="utf-8"), re.MULTILINE))

    def keep_or_unlink(link: re.Match[str]) -> str:
        waits = link[2] in listed and not (results / link[2] / "index.html").exists()
        return link[1] if waits else link[0]

    return STUDY.sub(keep_or_unlink, markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Let long names of code in tables break after a sign, and only there; keep options whole, in tables and in prose.

    >>> on_page_content("<td><code>tests/docs/test_pages.py::test_a_page_does</code></td>")[:40]
    '<td><code>tests/<wbr>docs/<wbr>test_<wbr'
    >>> on_page_content("<td><code>labeldp</code></td>")
    '<td><code>labeldp</code></td>'
    >>> on_page_content("<p><code>inspect --json</code></p>")
    '<p><code>inspect <span class="whole">--json</span></code></p>'
    """

    def soften(code: re.Match[str]) -> str:
        words = SIGNS.sub(r"\1<wbr>", code[1]) if len(code[1]) > LONGEST else code[1]
        return f"<code>{words}</code>"

    def keep_options(code: re.Match[str]) -> str:
        is_block = "\n" in code[1]
        return code[0] if is_block else f"<code>{OPTION.sub(WHOLE, code[1])}</code>"

    html = CELL.sub(lambda cell: f"<t{cell[1]}{cell[2]}>{CODE.sub(soften, cell[3])}</t{cell[1]}>", html)
    return CODE.sub(keep_options, html)
