"""The engine that was asked for, opened for the work and closed after it.

>>> with opened_engine("local") as engine:
...     engine.reduced(len, max, ["a", "bc"])
2
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from labeldp._validate import check_choice
from labeldp.engines._carry import Engine, Here
from labeldp.errors import Described, invalid, missing_extra

OWNER = "privatize_table"
ENGINES = ("local", "dask")


@contextmanager
def opened_engine(
    engine: str, *, client: Any = None, scheduler: str | None = None, workers: int | None = None
) -> Iterator[Engine]:
    """Give the engine that was asked for, and close what was opened for it."""
    check_choice(OWNER, "engine", engine, ENGINES)
    given = [
        name
        for name, value in (("client", client), ("scheduler", scheduler), ("workers", workers))
        if value is not None
    ]
    if engine == "local":
        if given:
            raise invalid(OWNER, given[0], "be left out", got=Described("one"), fix="It is for engine='dask'.")
        yield Here()
        return
    if len(given) > 1:
        got = Described(" and ".join(given))
        raise invalid(OWNER, "client, scheduler and workers", "be given one at a time", got=got)
    try:
        from labeldp.engines._dask import opened_cluster
    except ImportError as error:
        raise missing_extra("distributed", "dask", "engine='dask'") from error
    cluster = opened_cluster(client=client, scheduler=scheduler, workers=workers)
    try:
        yield cluster
    finally:
        cluster.close()
