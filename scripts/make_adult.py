"""Make the bundled Parquet of UCI Adult from the two files that UCI gives out (see ``--help``).

Rows, their order and their values are kept. Changed: spaces around values and the dot after test labels are
stripped, empty lines and the comment line are left out, `split` says which file a row is from.
"""

from __future__ import annotations

import argparse
import csv
import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

NUMBERS = {
    "age": pa.int8(),
    "fnlwgt": pa.int32(),
    "education-num": pa.int8(),
    "capital-gain": pa.int32(),
    "capital-loss": pa.int16(),
    "hours-per-week": pa.int8(),
}
COLUMNS = (
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship",
    "race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country", "income",
)  # fmt: skip

METADATA = {
    "title": "Adult (Census Income)",
    "attribution": (
        "Becker, B. and Kohavi, R. (1996). Adult. UCI Machine Learning Repository. https://doi.org/10.24432/C5XW20"
    ),
    "licence": "Creative Commons Attribution 4.0 International (CC BY 4.0), https://creativecommons.org/licenses/by/4.0/",
    "changes": "Both files in one table, column `split` added; spaces and the dot after test labels stripped.",
}


def rows_of(path: Path) -> list[list[str]]:
    """The values of one UCI file, stripped."""
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    rows = [[value.strip() for value in row] for row in csv.reader(content.decode().splitlines())]
    return [[*row[:-1], row[-1].rstrip(".")] for row in rows if len(row) == len(COLUMNS)]


def main() -> None:
    """Read both files, write one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("train", type=Path, help="adult.data or adult.data.gz")
    parser.add_argument("test", type=Path, help="adult.test or adult.test.gz")
    parser.add_argument("target", type=Path, help="the Parquet to write: src/labeldp/data/adult.parquet")
    chosen = parser.parse_args()
    parts = {"train": rows_of(chosen.train), "test": rows_of(chosen.test)}
    columns = {}
    for position, name in enumerate(COLUMNS):
        values = [row[position] for rows in parts.values() for row in rows]
        column = pa.array([int(v) for v in values], NUMBERS[name]) if name in NUMBERS else pa.array(values)
        columns[name] = column if name in NUMBERS else column.dictionary_encode()
    columns["split"] = pa.array([part for part, rows in parts.items() for _ in rows]).dictionary_encode()
    table = pa.table(columns).replace_schema_metadata(METADATA)
    pq.write_table(table, chosen.target, compression="zstd", compression_level=19)


if __name__ == "__main__":
    main()
