"""Tables as people have them: a generator of ugly files, each with what it holds or with why it must be refused.

    python benchmarks/ugly_tables.py [folder]

writes them all, reads each with `labeldp.data.open_table`, and prints how it was read or why it was refused.
tests/data/test_ugly_tables.py compares each with its truth, and shows that a refusal spends nothing.
"""

from __future__ import annotations

import bz2
import datetime
import gzip
import io
import json
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather

N = 60
ILL = ["no" if row % 3 else "yes" for row in range(N)]
AGE = [20 + row for row in range(N)]
SIZE = [1.5 + row / 4 for row in range(N)]
TOWN = [("Zürich", "Genève", "Bern")[row % 3] for row in range(N)]
DAYS = [datetime.date(2021, 1, 1) + datetime.timedelta(days=7 * row) for row in range(N)]
TRUTH: dict[str, list[Any]] = {"age": AGE, "size": SIZE, "town": TOWN, "ill": ILL}


@dataclass(frozen=True, kw_only=True)
class Ugly:
    """A file: its name, its bytes, what to say of it, and its truth (columns and values) or what the refusal must say."""

    name: str
    content: bytes | Callable[[Path], None]
    options: dict[str, Any] = field(default_factory=dict)
    truth: dict[str, list[Any]] | None = None
    says: str = ""
    label: str = "ill"

    def write(self, folder: Path) -> Path:
        path = folder / self.name
        if callable(self.content):
            self.content(path)
        else:
            path.write_bytes(self.content)
        return path


def lines(
    columns: dict[str, list[Any]], *, sep: str = ",", end: str = "\n", quote: str = "", header: bool = True
) -> str:
    """The text of a table whose values are written as they are."""
    rows = [list(columns)] if header else []
    rows += [list(row) for row in zip(*columns.values(), strict=True)]
    text = [[f"{quote}{cell}{quote}" for cell in row] for row in rows]
    return "".join(sep.join(row) + end for row in text)


def with_column(name: str, values: list[Any]) -> dict[str, list[Any]]:
    """A small table with one odd column."""
    return {"age": AGE, name: values, "ill": ILL}


def comma(values: list[float]) -> list[str]:
    return [str(value).replace(".", ",") for value in values]


def zipped(members: dict[str, bytes]) -> bytes:
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return memory.getvalue()


def write_bomb(path: Path) -> None:
    """A gzip of 400 MB of zeros in 400 kB."""
    with gzip.open(path, "wb") as stream:
        stream.write(b"age,ill\n")
        for _ in range(400):
            stream.write(b"0,0\n" * 2**18)


def json_lines(columns: dict[str, list[Any]]) -> bytes:
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def iso(values: list[datetime.date]) -> list[str]:
    return [day.isoformat() for day in values]


EURO = {"age": AGE, "size": comma(SIZE), "town": TOWN, "ill": ILL}
PLAIN = lines(TRUTH)
CODES = [f"{row * 137 % 100:05d}" for row in range(N)]
HUGE = [str(10**19 + row) for row in range(N)]
LONG = ["x" * 400_000] + ["y"] * (N - 1)
MARKED = {"gap": [None if row % 5 == 0 else row * 1.5 for row in range(N)]}


def marks(*words: str) -> list[str]:
    """Numbers with a gap in every fifth row, spelt by each of the words in turn."""
    return [words[row // 5 % len(words)] if row % 5 == 0 else str(row * 1.5) for row in range(N)]


CASES = [
    Ugly(name="plain.csv", content=PLAIN.encode(), truth=TRUTH),
    Ugly(name="semicolon.csv", content=lines(EURO, sep=";").encode(), truth=TRUTH),
    Ugly(name="semicolon-cp1252.csv", content=lines(EURO, sep=";").encode("cp1252"), truth=TRUTH),
    Ugly(name="tabs.tsv", content=lines(TRUTH, sep="\t").encode(), truth=TRUTH),
    Ugly(name="tabs.txt", content=lines(EURO, sep="\t").encode(), truth=TRUTH),
    Ugly(name="pipes.csv", content=lines(TRUTH, sep="|").encode(), truth=TRUTH),
    Ugly(name="colons.csv", content=lines(TRUTH, sep=":").encode(), options={"sep": ":"}, truth=TRUTH),
    Ugly(name="quoted.csv", content=lines(TRUTH, quote='"').encode(), truth=TRUTH),
    Ugly(name="single-quotes.csv", content=lines({**TRUTH, "town": ["Bern, BE"] * N}, quote="'").encode(),
         truth={**TRUTH, "town": ["Bern, BE"] * N}),
    Ugly(name="single-quotes-plain.csv", content=lines(TRUTH, quote="'").encode(), truth=TRUTH),
    Ugly(name="backslash.csv", content=lines(with_column("word", [r'"a \"b\", c"'] * N)).encode(),
         truth=with_column("word", ['a "b", c'] * N)),
    Ugly(name="excel.csv", content=("sep=;\r\n" + lines(EURO, sep=";", end="\r\n")).encode("utf-8-sig"), truth=TRUTH),
    Ugly(name="bom.csv", content=PLAIN.encode("utf-8-sig"), truth=TRUTH),
    Ugly(name="utf16.csv", content=PLAIN.encode("utf-16"), truth=TRUTH),
    Ugly(name="utf16-no-mark.csv", content=PLAIN.encode("utf-16-le"), truth=TRUTH),
    Ugly(name="latin1.csv", content=PLAIN.encode("latin-1"), truth=TRUTH),
    Ugly(name="wrong-encoding.csv", content=PLAIN.encode("latin-1"), options={"encoding": "utf-8"}, says="--encoding"),
    Ugly(name="old-mac.csv", content=lines(TRUTH, end="\r").encode(), truth=TRUTH),
    Ugly(name="windows.csv", content=lines(TRUTH, end="\r\n").encode(), truth=TRUTH),
    Ugly(name="blank-lines.csv", content=("\n\n" + PLAIN.replace("\n", "\n\n")).encode(), truth=TRUTH),
    Ugly(name="no-last-newline.csv", content=PLAIN.rstrip("\n").encode(), truth=TRUTH),
    Ugly(name="trailing-separators.csv", content=PLAIN.replace("\n", ",\n").encode(), truth=TRUTH),
    Ugly(name="trailing-in-rows.csv", content=PLAIN.replace("\n", ",\n").replace(",\n", "\n", 1).encode(), truth=TRUTH),
    Ugly(name="index.csv", content=lines({"": list(range(N)), **TRUTH}).encode(),
         truth={"column_1": list(range(N)), **TRUTH}),
    Ugly(name="row-names.csv", content=("age,size,town,ill\n" + lines({"": list(range(N)), **TRUTH}, header=False)).encode(),
         says="--columns"),
    Ugly(name="headerless.csv", content=lines(TRUTH, header=False).encode(), says="--columns a,b,c"),
    Ugly(name="headerless-words.csv", content=lines({"town": TOWN, "ill": ILL}, header=False).encode(), says="--columns a,b,c"),
    Ugly(name="headerless-named.csv", content=lines(TRUTH, header=False).encode(), options={"columns": list(TRUTH)},
         truth=TRUTH),
    Ugly(name="years-as-names.csv", content=lines({"2019": AGE, "2020": SIZE, "ill": ILL}).encode(), says="--header"),
    Ugly(name="years-said.csv", content=lines({"2019": AGE, "2020": SIZE, "ill": ILL}).encode(), options={"header": True},
         truth={"2019": AGE, "2020": SIZE, "ill": ILL}),
    Ugly(name="same-name-twice.csv", content=PLAIN.replace("size", "age", 1).encode(), says="--columns a,b,... --header"),
    Ugly(name="same-name-mended.csv", content=PLAIN.replace("size", "age", 1).encode(),
         options={"columns": list(TRUTH), "header": True}, truth=TRUTH),
    Ugly(name="title-above.csv", content=("Patients of 2024\n" + PLAIN).encode(), says="Remove lines above the names"),
    Ugly(name="ragged.csv", content=PLAIN.replace("30,4.0", "30,4.0,5", 1).encode(), says="in line 12"),
    Ugly(name="open-quote.csv", content=PLAIN.replace("Bern", '"Bern', 1).encode(), says="opened and not closed"),
    Ugly(name="nul.csv", content=PLAIN.replace("Bern", "Be\0rn", 1).encode(), says="NUL"),
    Ugly(name="long-line.csv", content=lines(with_column("note", LONG)).encode(), truth=with_column("note", LONG)),
    Ugly(name="markers.csv", content=lines(with_column("gap", marks("NA", "?", "", "-", "null", "NaN"))).encode(),
         truth=with_column("gap", MARKED["gap"])),
    Ugly(name="markers-euro.csv", content=lines(with_column("gap", [x.replace(".", ",") for x in marks("kA", "?")]),
         sep=";").encode(), options={"missing_values": ["kA"]}, truth=with_column("gap", MARKED["gap"])),
    Ugly(name="plus-and-minus.csv", content=lines({"age": AGE, "ill": ["+" if row % 3 else "-" for row in range(N)]}).encode(),
         truth={"age": AGE, "ill": ["+" if row % 3 else "-" for row in range(N)]}),
    Ugly(name="leading-zeros.csv", content=lines(with_column("zip", CODES)).encode(), truth=with_column("zip", CODES)),
    Ugly(name="huge-integers.csv", content=lines(with_column("card", HUGE)).encode(), truth=with_column("card", HUGE)),
    Ugly(name="thousands.csv", content=lines(with_column("pay", [f'"{1000 * x + 0.5:,}"' for x in range(N)])).encode(),
         truth=with_column("pay", [1000 * x + 0.5 for x in range(N)])),
    Ugly(name="thousands-euro.csv",
         content=lines(with_column("pay", [f"{1e6 * x + 0.5:,}".translate({44: ".", 46: ","}) for x in range(N)]), sep=";").encode(),
         truth=with_column("pay", [1e6 * x + 0.5 for x in range(N)])),
    Ugly(name="thousands-swiss.csv", content=lines(with_column("pay", [f"{1000 * x + 0.5:,}".replace(",", "'") for x in range(N)])).encode(),
         truth=with_column("pay", [1000 * x + 0.5 for x in range(N)])),
    Ugly(name="two-ways.csv", content=lines(with_column("pay", [f"{1 + x},{100 + x}" for x in range(N)]), sep=";").encode(), says="--decimal"),
    Ugly(name="two-ways-said.csv", content=lines(with_column("pay", [f"{1 + x},{100 + x}" for x in range(N)]), sep=";").encode(),
         options={"decimal": "."}, truth=with_column("pay", [1000.0 * (1 + x) + 100 + x for x in range(N)])),
    Ugly(name="iso-dates.csv", content=lines(with_column("day", iso(DAYS))).encode(), truth=with_column("day", DAYS)),
    Ugly(name="german-dates.csv", content=lines(with_column("day", [f"{d:%d.%m.%Y}" for d in DAYS]), sep=";").encode(), truth=with_column("day", DAYS)),
    Ugly(name="american-dates.csv", content=lines(with_column("day", [f"{d:%m/%d/%Y}" for d in DAYS])).encode(), truth=with_column("day", DAYS)),
    Ugly(name="dates-two-ways.csv", content=lines(with_column("day", ["03/04/2021", "05/06/2021"] * (N // 2))).encode(),
         truth=with_column("day", ["03/04/2021", "05/06/2021"] * (N // 2))),
    Ugly(name="dates-said.csv", content=lines(with_column("day", ["03/04/2021", "05/06/2021"] * (N // 2))).encode(),
         options={"types": {"day": "%d/%m/%Y"}}, truth=with_column("day", [datetime.date(2021, 4, 3), datetime.date(2021, 6, 5)] * (N // 2))),
    Ugly(name="mixed-dates.csv", content=lines(with_column("day", ["2021-04-03", "05.06.2021"] * (N // 2))).encode(),
         truth=with_column("day", ["2021-04-03", "05.06.2021"] * (N // 2))),
    Ugly(name="spaces.csv", content=PLAIN.replace(",", ", ").encode(), truth={"age": AGE, "size": SIZE,
         "town": [f" {town}" for town in TOWN], "ill": [f" {ill}" for ill in ILL]}),
    Ugly(name="late-word.csv", content=("code,ill\n" + "1,no\n2,yes\n" * 150_000 + "x,no\n" + "1,no\n2,yes\n" * 150_000).encode(),
         truth={"code": ["1", "2"] * 150_000 + ["x"] + ["1", "2"] * 150_000, "ill": ["no", "yes"] * 150_000 + ["no"] + ["no", "yes"] * 150_000}),
    Ugly(name="late-fraction.csv", content=("code,ill\n" + "1,no\n2,yes\n" * 150_000 + "1.5,no\n" + "1,no\n2,yes\n" * 150_000).encode(),
         truth={"code": [1.0, 2.0] * 150_000 + [1.5] + [1.0, 2.0] * 150_000, "ill": ["no", "yes"] * 150_000 + ["no"] + ["no", "yes"] * 150_000}),
    Ugly(name="late-ragged.csv", content=("code,ill\n" + "1,no\n2,yes\n" * 150_000 + "1,no,3\n" + "1,no\n2,yes\n" * 150_000).encode(),
         says="in line 300,002"),
    Ugly(name="late-bytes.csv", content=("code,t,ill\n" + "1,a,no\n2,b,yes\n" * 150_000 + "1,é,no\n" + "1,a,no\n2,b,yes\n" * 150_000).encode("latin-1"),
         says="--encoding cp1252"),
    Ugly(name="packed.csv.gz", content=gzip.compress(PLAIN.encode()), truth=TRUTH),
    Ugly(name="packed.tsv.bz2", content=bz2.compress(lines(EURO, sep="\t").encode("utf-16")), truth=TRUTH),
    Ugly(name="packed.zip", content=zipped({"people.csv": lines(EURO, sep=";").encode("cp1252")}), truth=TRUTH),
    Ugly(name="cut-short.csv.gz", content=gzip.compress(PLAIN.encode())[:-30], says="cut short"),
    Ugly(name="two-members.zip", content=zipped({"a.csv": PLAIN.encode(), "b.csv": PLAIN.encode()}), says="Unpack it"),
    Ugly(name="other-member.zip", content=zipped({"a.docx": b"no table"}), says="Unpack it"),
    Ugly(name="bomb.csv.gz", content=write_bomb, says="unpack it yourself"),
    Ugly(name="lines.jsonl", content=json_lines(with_column("day", iso(DAYS))), truth=with_column("day", DAYS)),
    Ugly(name="lines.ndjson.gz", content=gzip.compress(json_lines({**TRUTH, "flag": [row % 2 == 0 for row in range(N)]})),
         truth={**TRUTH, "flag": [row % 2 == 0 for row in range(N)]}),
    Ugly(name="nested.jsonl", content=json_lines({"age": AGE, "more": [{"a": 1}] * N, "ill": ILL}), says="flat objects"),
    Ugly(name="mixed.jsonl", content=json_lines({"age": ["x" if row == 7 else row for row in range(N)], "ill": ILL}), says="as text"),
    Ugly(name="broken.jsonl", content=json_lines(TRUTH) + b'{"age": 1,\n', says="in line 61"),
    Ugly(name="table.feather", content=lambda path: pyarrow.feather.write_feather(pa.table(TRUTH), path), truth=TRUTH),
    Ugly(name="empty.csv", content=b"", says="empty file"),
    Ugly(name="names-alone.csv", content=b"age,ill\n", says="names alone"),
    Ugly(name="table.xlsx", content=b"PK\3\4", says="Known are"),
]  # fmt: skip


def main() -> None:
    from labeldp.data import open_table
    from labeldp.errors import LabelDPError

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else temporary)
        for case in CASES:
            path = case.write(folder)
            try:
                source = open_table(path, **case.options).settle()
                said = f"read: {source.form.words if source.form else source.schema.names}"
            except LabelDPError as error:
                said = f"refused: {error}"
            print(f"{case.name:28} {said}")
        print(f"{len(CASES)} files, {sum(case.truth is None for case in CASES)} of them to be refused")


if __name__ == "__main__":
    main()
