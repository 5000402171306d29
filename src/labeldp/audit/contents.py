"""What stands in a release: every row under its own channel, every column against what labeldp writes.

>>> import numpy as np
>>> import labeldp
>>> raw = np.arange(2000) % 2
>>> release = labeldp.privatize(raw, labeldp.RandomizedResponse(2.0, n_classes=2), rng=0)
>>> support_check(release).passed, plausible_check(release).passed
(True, True)
>>> from dataclasses import replace
>>> sorted_raw = replace(release, codes=np.sort(raw).astype(np.uint8))  # raw labels of a sorted table, sealed again
>>> support_check(sorted_raw).passed, plausible_check(sorted_raw).passed
(True, False)
>>> looks_raw(release, raw), looks_raw(release, raw[::-1] * 0 + 1)
(True, False)

The mathematics. A release says how each row was randomized, T_i[y, o], and not from which label. Three things can be said
without the labels.

*Support.* An output o with T_i[y, o] = 0 for every y did not come out of the channel. Every row is asked.

*Plausible outputs.* Take any set of rows that was chosen without looking at the noise: a block of rows, one value of a
feature, one group of the prior. Whatever the labels are, row i gives the output o with probability u_i = max_y T_i[y, o]
at most, and rows are independent, so the count C of o among N rows is no larger, in distribution, than a sum of
independent coins with these probabilities. By Hoeffding (1956) the upper tail of such a sum, one or more above its mean
N u, is at most that of a binomial with N trials and their mean u. So Pr[Binomial(N, u) >= C] is a p-value that holds for all
labels, and the lower tail with l_i = min_y T_i[y, o] is another. Raw labels in the place of released ones fail where some
set of rows has a share of one class beyond what noise leaves possible: 73% at epsilon 1 and two classes. All sets, outputs
and tails share one level, `LEVEL` (Bonferroni). Rows drawn in stages are taken stage by stage: a later stage's channel may
depend on the outputs of an earlier one, and given these the statement holds for it.

*A column that is the raw labels.* It agrees with the released labels as often as the channel says, and a column that has
nothing to do with them as often as chance says (`looks_raw`). Its values need not be called as the classes are: which
class a value stands for is learned on one half of the rows and judged on the other.

What cannot be seen. Raw labels that are sealed in the place of released ones, in an order and with features that never
show a share beyond the channel's reach; labels that hide in many values of a column (digits of a number, words of a text)
or at an epsilon too small for the number of rows; anything in the numbers of the channel, the candidate sets and the prior,
which are what was believed beforehand: a belief that saw the labels gives them away under any channel. The owner, who
has the labels, sees more: `audit(release, labels=...)`. Nor whether rows were drawn in the stage that they name, or drawn
twice as two rows: the ledger's number of rows tells the latter.

References: Hoeffding 1956, "On the distribution of the number of successes in independent trials".
"""

from __future__ import annotations

import base64
import math
import os
import re
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from labeldp.arrays import Bools, Floats, Int64s
from labeldp.audit.results import Check
from labeldp.channel import NumericChannel, SetAnswers
from labeldp.release import Release
from labeldp.release.columns import EXTRAS, RESERVED, clean_metadata, find_metadata
from labeldp.release.manifest import CHANNEL, PRIOR, Manifest, read_manifest
from labeldp.untrusted import read_footer

#: Rows looked at, evenly spaced: at this many, a share is known to 0.2 %; fewer where classes are so many that the table
#: of rows by classes would be larger than the second number.
MOST_ROWS, MOST_CELLS = 50_000, 5_000_000
#: Standard deviations: a copy of the raw labels is farther than this from its expectation, and so passes unseen, once in 1.7 million
#: times; an unrelated column is farther than the second from its own once in 500 million.
NEAR, FAR = 5.0, 6.0
#: A sound release fails "outputs plausible" with this probability at most, whatever its labels and columns are.
LEVEL = 1e-6
#: The commonest outputs that are counted; a fault in how labels are drawn shows in them.
MOST_OUTPUTS = 16
#: Different values of a column up to which each is a set of rows; numbers of more values are cut into `BINS` quantiles.
MOST_VALUES, BINS = 1024, 32
#: Different values of a column up to which it is asked whether they stand for classes: this many, or two for each class.
MOST_CODES = 32
#: Rows of the smallest block; the next are twice as long.
LEAST_BLOCK = 64
#: Rows of numbers that are compared, at least: fewer have no normal means.
LEAST_COMPARED = 100
#: Names that are shown of many.
MOST_NAMED = 8
#: What Arrow calls itself in a file.
CREATED_BY = re.compile(r"parquet-cpp-arrow version [0-9]+\.[0-9]+\.[0-9]+(-SNAPSHOT)?")
#: Bytes of a Parquet file around its columns and its footer: two marks and the footer's length.
FRAME_BYTES = 12
#: What a Parquet file says beside its columns: the schema in Arrow's own form, and pandas' description of it.
ARROW_SCHEMA, PANDAS = b"ARROW:schema", b"pandas"


class Grouping(NamedTuple):
    """Sets of rows: the number of its set for each row looked at, and what the rows of one set have in common."""

    name: str
    codes: Int64s
    size: int
    values: tuple[Any, ...] = ()

    @property
    def is_exact(self) -> bool:
        """Whether each set is one value of a column, and not a range of them."""
        return len(self.values) > 0


def support_check(release: Release) -> Check:
    """Check, for every row, that its output has a probability above 0 under its own channel."""
    name = "outputs possible"
    codes = release.codes
    known = release.channel.are_outputs(codes)
    if not known.all():
        detail = (
            f"{int((~known).sum()):,} outputs that the channel does not have, the first in row {int((~known).argmax())}"
        )
        return Check(name=name, passed=False, detail=detail)
    wrong = ~release.channel.possible(codes)
    if wrong.any():
        detail = (
            f"{int(wrong.sum()):,} of {len(release):,} outputs have probability 0 under their own channel, "
            f"the first in row {int(wrong.argmax())}"
        )
        return Check(name=name, passed=False, detail=detail)
    return Check(name=name, passed=True, detail=f"{len(release):,} rows, each within its channel's support")


def choose_rows(release: Release) -> Int64s:
    """Return the rows that are looked at: all, or evenly spaced ones where they are many."""
    step = max(1, -(-len(release) // min(MOST_ROWS, max(1, MOST_CELLS // release.n_classes))))
    return np.arange(0, len(release), step)


def _group_rows(part: Release) -> Iterator[Grouping]:
    """Yield sets of rows that every release has: all of them, blocks, and the groups of the channel and of the prior."""
    n = len(part)
    position = np.arange(n)
    yield Grouping("all rows", np.zeros(n, np.int64), 1)
    length = LEAST_BLOCK
    while length < n:
        blocks = position // length
        yield Grouping(f"a block of {length:,} of the rows looked at", blocks, int(blocks[-1]) + 1)
        length *= 2
    groups = {"the channel's row": part.channel.example_arrays().get("row"), "the prior's row": part.prior_index}
    for name, codes in groups.items():
        if codes is not None and n:
            kinds, inverse = np.unique(codes, return_inverse=True)
            yield Grouping(name, inverse.astype(np.int64), len(kinds))


def plausible_check(release: Release, directory: str | os.PathLike[str] | None = None) -> Check:
    """Compare the count of each output in each set of rows with the most and the least that any labels could give.

    With the directory of a release, the columns of its files are sets of rows too; a column that cannot be read as values
    (a list, a text with many values) is passed over.
    """
    name = "outputs plausible"
    if not len(release):
        return Check(name=name, passed=True, detail="no rows")
    if not release.channel.are_outputs(release.codes).all():
        return Check(name=name, passed=False, detail="not asked: the channel does not have all of these outputs")
    rows = choose_rows(release)
    part = release.take(rows)
    groupings = [*_group_rows(part), *(() if directory is None else read_groupings(directory, release, rows))]
    k, given, bounds = _list_outputs(part)
    stage = np.zeros(len(part), np.int64) if part.stage is None else part.stage.astype(np.int64)
    stages = int(stage.max()) + 1
    worst, what, tests, looked = 1.0, "", 0, 0
    for grouping in groupings:
        codes, size = grouping.codes * stages + stage, grouping.size * stages
        total = np.bincount(codes, minlength=size)
        tests += 2 * k * int((total > 0).sum())
        looked += 1
        for output, (most, least) in bounds.items():
            found = np.bincount(codes[given(output)], minlength=size)
            above, below = (np.asarray(np.bincount(codes, one, size), np.float64) for one in (most, least))
            tail = _tail(found, total, above, below)
            at = int(tail.argmin())
            if tail[at] < worst:
                share = found[at] / total[at]
                limits = [float(one[at] / total[at]) for one in (below, above)]
                worst = float(tail[at])
                what = (
                    f"output {output} is {share:.3g} of {int(total[at]):,} rows ({grouping.name}), where any labels give "
                    f"{limits[0]:.3g} to {limits[1]:.3g}"
                )
    passed = worst * tests > LEVEL
    sure = f"{looked} ways to choose rows, {len(part):,} rows; a sound release fails once in {1 / LEVEL:,.0f} times"
    return Check(name=name, passed=passed, detail=sure if passed else f"{what}: p-value {worst * tests:.2g}")


def _list_outputs(part: Release) -> tuple[int, Callable[[int], Bools], dict[int, tuple[Floats, Floats]]]:
    """Return how many outputs there are, which rows have one, and the most and the least chance of each common one.

    Where answers are sets, output j is that the set names label j: d blocks of a row do, so its chance is between d times
    that of a block without the label and d times that of one with it.
    """
    channel = part.channel
    if isinstance(channel, SetAnswers) and not channel.outputs_are_labels:
        members = channel.members(part.codes)
        shapes = channel.shapes_of(part.codes).astype(np.float64)
        inside, outside = (shapes[:, 1] * one for one in channel.chances(shapes))
        named = np.argsort(-members.sum(axis=0), kind="stable")[:MOST_OUTPUTS]
        return part.n_classes, lambda label: members[:, label], {int(label): (inside, outside) for label in named}
    k = channel.n_outputs
    common = np.argsort(-np.bincount(part.codes, minlength=k), kind="stable")[:MOST_OUTPUTS]
    return k, lambda output: part.codes == output, {int(one): _bound_output(part, int(one)) for one in common}


def _bound_output(part: Release, output: int) -> tuple[Floats, Floats]:
    """Return the largest and the smallest probability of an output over the labels, for each row."""
    likely = part.channel.likelihood(np.full(len(part), output))
    return likely.max(axis=1), likely.min(axis=1)


def _tail(found: Int64s, total: Int64s, most: Floats, least: Floats) -> Floats:
    """Return the smaller tail of each count, under independent coins with these expected sums; 1 within one of them.

    Pr[Binomial(n, p) >= c] = I_p(c, n - c + 1), the incomplete beta function, and the lower tail is the upper one of what
    did not come out.
    """
    from scipy.special import betainc

    n = np.maximum(total, 1)
    missed = total - found
    high = np.where(found >= most + 1, betainc(np.maximum(found, 1), missed + 1.0, np.minimum(most / n, 1.0)), 1.0)
    low = np.where(found <= least - 1, betainc(np.maximum(missed, 1), found + 1.0, np.maximum(1 - least / n, 0.0)), 1.0)
    answer: Floats = np.minimum(high, low)
    return answer


def read_groupings(directory: str | os.PathLike[str], release: Release, rows: Int64s) -> Iterator[Grouping]:
    """Yield the sets of rows that the columns of a release's files make: one for each value, or for a range of them.

    Every column but the released label's, ours too. Of a text with many values, only what of it is invisible is looked at.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    paths = read_manifest(directory).label_files
    label = _label_name(release)
    for column in pq.read_schema(paths[0]).names:
        if column == label:
            continue
        pieces = (pq.ParquetFile(path).read(columns=[column])[column] for path in paths)
        values = pa.chunked_array([chunk for piece in pieces for chunk in piece.chunks]).take(rows)
        try:
            encoded = values.combine_chunks().dictionary_encode()
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid, AttributeError):
            continue
        yield from _group_values(column, encoded)


def _group_values(column: str, encoded: Any) -> Iterator[Grouping]:
    """Yield the grouping of one column, given as a dictionary array, and of what is invisible in its texts."""
    import pyarrow as pa

    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    name = f"column {column!a}"
    kinds = [None, *encoded.dictionary.to_pylist()]
    places = encoded.indices.cast(pa.int64())  # unsigned in a dictionary of somebody else's, as polars has them
    codes = places.fill_null(-1).to_numpy(zero_copy_only=False) + 1
    texts = [isinstance(kind, str) for kind in kinds]
    if any(texts):
        hidden = ["".join(c for c in kind if _is_invisible(c)) if isinstance(kind, str) else "" for kind in kinds]
        unseen, place = np.unique(np.array(hidden, dtype=object).astype(str), return_inverse=True)
        if len(unseen) > 1:
            shown = tuple(unseen.tolist())
            yield Grouping(f"invisible characters of {name}", place[codes].astype(np.int64), len(unseen), shown)
    if len(kinds) <= MOST_VALUES:
        yield Grouping(name, codes, len(kinds), tuple(kinds))
    elif all(isinstance(kind, (int, float)) for kind in kinds[1:]):
        numbers = np.array([0.0 if kind is None else float(kind) for kind in kinds])[codes]
        edges = np.nanquantile(numbers, np.arange(1, BINS) / BINS) if np.isfinite(numbers).any() else numbers[:0]
        yield Grouping(f"ranges of {name}", np.searchsorted(edges, numbers).astype(np.int64), BINS)


def _is_invisible(character: str) -> bool:
    """Whether a character shows nothing: a format mark, a private or an unassigned one."""
    return unicodedata.category(character) in {"Cf", "Co", "Cn", "Cs"}


def _label_name(release: Release) -> str:
    """Return the column that holds what was released."""
    if release.channel.outputs_are_labels or release.channel.outputs_are_numbers:
        return "label" if release.label_column is None else release.label_column
    return "output" if release.label_column is None else RESERVED + "output"


def raw_label_check(directory: str | os.PathLike[str], release: Release) -> Check:
    """Check that no column beside the released labels behaves as the raw labels would (`looks_raw`).

    Up to `MOST_ROWS` rows are compared, evenly spaced. A column of few values is also asked whether these stand for
    classes under other names, on two halves of the rows. Columns that labeldp adds are looked at as the table's own are.
    """
    name = "no raw label column"
    if isinstance(release.channel, NumericChannel):
        return _raw_number_check(name, directory, release)
    if not release.channel.outputs_are_labels:
        return Check(name=name, passed=True, detail="outputs are not labels: no column can be compared with them")
    rows = choose_rows(release)
    part = release.take(rows)
    suspects, looked = [], 0
    for grouping in read_groupings(directory, release, rows):
        looked += 1
        if grouping.is_exact and _stands_for_labels(part, grouping):
            suspects.append(grouping.name)
    if suspects:
        return Check(name=name, passed=False, detail=f"behaves as the raw labels: {'; '.join(suspects[:MOST_NAMED])}")
    other = f"{looked} other columns, none behaves as they would" if looked else "the release has no other columns"
    return Check(name=name, passed=True, detail=other)


def _raw_number_check(name: str, directory: str | os.PathLike[str], release: Release) -> Check:
    """Compare the released numbers with every other column of numbers, as `looks_raw_number` does."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = choose_rows(release)
    part = release.take(rows)
    paths, label = read_manifest(directory).label_files, _label_name(release)
    suspects, looked = [], 0
    for field in pq.read_schema(paths[0]):
        kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
        if field.name == label or not any(kind(field.type) for kind in kinds):
            continue
        looked += 1
        pieces = [pq.ParquetFile(path).read(columns=[field.name])[field.name] for path in paths]
        whole = pa.chunked_array([chunk for piece in pieces for chunk in piece.chunks], type=field.type).take(rows)
        values = whole.cast(pa.float64(), safe=False).to_numpy()
        if looks_raw_number(part, values):
            suspects.append(f"column {field.name!a}")
    if suspects:
        return Check(name=name, passed=False, detail=f"behaves as the raw numbers: {'; '.join(suspects[:MOST_NAMED])}")
    return Check(
        name=name, passed=True, detail=f"{looked} other columns of numbers, none behaves as the raw ones would"
    )


def looks_raw_number(release: Release, values: Floats) -> bool:
    """Whether a column of numbers is to the released ones what the raw ones are, and not what others are.

    Clipped to the bounds, raw numbers x have answers v with E v = x: the mean of v - x is 0, the slope of v on x is 1, and the mean
    of (v - x)^2 is that of the channel's variance at x, each up to `NEAR` standard errors; and the slope is `FAR` of
    them above 0. A prediction of the numbers that is right on average has the first two; its own error adds to the third.
    """
    channel = release.channel
    assert isinstance(channel, NumericChannel)
    there = np.isfinite(values)
    if there.sum() < LEAST_COMPARED:
        return False
    part = release.take(np.flatnonzero(there))
    x, v, n = np.clip(values[there], *channel.bounds), part.values, int(there.sum())
    centred = x - x.mean()
    extent = float(centred @ centred)
    if extent == 0:
        return False
    index = np.zeros(n, np.int64) if part.channel.index is None else part.channel.index  # type: ignore[attr-defined]
    errors = (channel.variances + channel.bias**2)[index]
    place = (x - channel.levels[0]) / (channel.levels[1] - channel.levels[0])
    low = np.minimum(place.astype(np.int64), channel.n_classes - 2)
    up = place - low
    # A label between levels is one of them: the variance of both, and that of which it is.
    step = channel.levels[1] - channel.levels[0]
    rows = np.arange(n)
    expected = (1 - up) * errors[rows, low] + up * errors[rows, low + 1] + up * (1 - up) * step**2
    away = v - x
    slope, error = float(centred @ v) / extent, math.sqrt(float(centred**2 @ away**2)) / extent
    extra = away**2 - expected
    near = abs(away.mean()) <= NEAR * away.std() / math.sqrt(n) and abs(slope - 1) <= NEAR * error
    return bool(near and slope > FAR * error and abs(extra.mean()) <= NEAR * extra.std() / math.sqrt(n))


def _stands_for_labels(part: Release, grouping: Grouping) -> bool:
    """Whether the values of a column, as the classes that they are called or that they best stand for, look raw."""
    place = {str(name): code for code, name in enumerate(part.classes)}
    named = [place.get(str(value)) for value in grouping.values]
    there = np.bincount(grouping.codes, minlength=grouping.size) > 0
    if all(code is not None for code, used in zip(named, there, strict=True) if used) and there.sum() > 1:
        codes = np.array([0 if code is None else code for code in named], np.int64)[grouping.codes]
        if looks_raw(part, codes):
            return True
    if not 1 < there.sum() <= max(MOST_CODES, 2 * part.n_classes):
        return False
    learn, judge = np.arange(0, len(part), 2), np.arange(1, len(part), 2)
    first = part.take(learn)
    likely = np.log(np.maximum(first.channel.likelihood(first.codes), 1e-300))
    scores = np.zeros((grouping.size, part.n_classes))
    np.add.at(scores, grouping.codes[learn], likely)
    codes = scores.argmax(axis=1)[grouping.codes[judge]]
    return len(judge) > 0 and looks_raw(part.take(judge), codes)


def looks_raw(release: Release, codes: npt.NDArray[Any]) -> bool:
    """Whether a column, as codes, agrees with the released labels as the raw ones would and as unrelated ones would not.

    A copy of the raw labels agrees on as many rows as the channel says in expectation, up to `NEAR` standard deviations;
    an unrelated column on as many as the two columns' frequencies say, and the count must be `FAR` above that. A row whose
    channel cannot give the code out (a label that is no candidate) tells nothing, and is left out.
    """
    n, k = len(release), release.n_classes
    own = np.zeros((n, k), np.float32)
    own[np.arange(n), codes] = 1.0
    chance = np.asarray(release.channel.expected_accuracy(own), np.float64)
    telling = chance > 0
    if not telling.any():
        return False
    chance, codes, given = chance[telling], codes[telling], release.codes[telling]
    n, agree = len(codes), int((codes == given).sum())
    share = np.bincount(codes, minlength=k) / n @ (np.bincount(given, minlength=k) / n)
    spread = max(float((chance * (1 - chance)).sum()), 1.0) ** 0.5
    unrelated = max(float(n * share * (1 - share)), 1.0) ** 0.5
    return bool(abs(agree - chance.sum()) <= NEAR * spread and agree - n * share > FAR * unrelated)


# ------------------------------------------------------------------------------------------------ columns and bytes


def columns_check(directory: str | os.PathLike[str], release: Release) -> Check:
    """Check that each file of a release has the columns that labeldp writes, holding what they may, and nothing else.

    Looked at: the names and types of columns, the ranges of stages and of the prior's rows, missing values, metadata of
    the schema, of its fields and of the file, dictionaries, and whether every byte of a file
    belongs to a column or to the footer. A table whose manifest does not list its other columns fails: releases of older
    versions do not, and then any column may be a stranger.
    """
    manifest = read_manifest(directory)
    found = [
        *_compare_header(manifest, release),
        *_compare_columns(manifest, release),
        *_compare_ranges(manifest, release),
    ]
    for name in manifest.content["files"]:
        found += [f"{name}: {what}" for what in _inspect_file(manifest.directory / name, manifest)]
    found += _inspect_labels(manifest, release)
    detail = (
        "; ".join(found[:MOST_NAMED]) or "every column, its values and the files' metadata are as labeldp writes them"
    )
    return Check(name="only what labeldp writes", passed=not found, detail=detail)


def _compare_header(manifest: Manifest, release: Release) -> Iterator[str]:
    """Yield where the manifest and the two shared files say more than the release needs."""
    import pyarrow.parquet as pq

    if manifest.content["channel"] != release.channel.header():
        yield "the manifest says more of the channel than a channel has"
    expected = {CHANNEL: set(release.channel.row_arrays()), PRIOR: set() if release.prior is None else {"prior"}}
    for name, columns in expected.items():
        if name in manifest.content["files"]:
            strange = set(pq.read_schema(manifest.directory / name).names) - columns
            yield from (f"{name}: column {one!a}" for one in sorted(strange))


def _compare_columns(manifest: Manifest, release: Release) -> Iterator[str]:
    """Yield columns of the files of labels that are neither ours nor listed, and ours that are missing or repeated."""
    import pyarrow.parquet as pq

    mark = "" if release.label_column is None else RESERVED
    own = {mark + name for name in release.channel.example_arrays()}
    own |= {mark + "stage"} if "stages" in manifest.content else set()
    own |= {mark + "prior_row"} if release.prior is not None else set()
    own.add(_label_name(release))
    listed = manifest.content.get("features", ())
    if release.label_column is not None and "features" not in manifest.content:
        yield "the table's own columns are not listed, as in releases of older versions: any of them may be a stranger"
        listed = [name for name in pq.read_schema(manifest.label_files[0]).names if not name.startswith(RESERVED)]
    for path in manifest.label_files:
        names = pq.read_schema(path).names
        strange = [name for name in names if name not in own and name not in listed]
        yield from (f"{path.name}: column {name!a} is not listed" for name in strange)
        yield from (f"{path.name}: column {name!a} is missing" for name in sorted({*own, *listed} - {*names}))
        yield from (f"{path.name}: column {name!a} twice" for name in sorted({n for n in names if names.count(n) > 1}))
    yield from (f"column {name!a} has a name with invisible characters" for name in listed if _has_invisible(name))


def _has_invisible(text: str) -> bool:
    return any(_is_invisible(character) for character in text)


def _compare_ranges(manifest: Manifest, release: Release) -> Iterator[str]:
    """Yield columns of ours whose values are not what they count."""
    limits = {
        "stage": manifest.content.get("stages"),
        "prior_row": None if release.prior is None else len(release.prior),
    }
    values = {"stage": release.stage, "prior_row": release.prior_index}
    for name, column in values.items():
        limit = limits[name]
        if column is None:
            continue
        if column.dtype.kind not in "iu":
            yield f"column {name} has values that are missing, or no whole numbers"
        elif limit is None:
            yield f"column {name} is there, and the manifest does not say what it counts"
        elif len(column) and not (int(column.min()) >= 0 and int(column.max()) < limit):
            yield f"column {name} has values beyond 0 .. {limit - 1}"


def _inspect_file(path: Path, manifest: Manifest) -> Iterator[str]:
    """Yield what a Parquet file says beside its columns."""
    import io

    import pyarrow.parquet as pq

    facts = read_footer(path)
    schema = pq.read_schema(path)
    for key, value in (facts.metadata or {}).items():
        if key == ARROW_SCHEMA:
            if not _repeats_schema(base64.b64decode(value), schema):
                yield "Arrow's schema in the footer says more than the file's"
        elif key != PANDAS:
            yield f"metadata {key.decode('utf-8', 'replace')!a}"
    if schema.metadata:
        known = [*schema.names, *([] if manifest.label_column is None else [manifest.label_column])]
        if clean_metadata(schema.metadata, columns=known, label=manifest.label_column) != schema.metadata:
            yield f"metadata of the schema: {[key.decode('utf-8', 'replace') for key in schema.metadata]!a}"
    yield from (f"metadata of column {name!a}" for name in find_metadata(schema))
    if not CREATED_BY.fullmatch(facts.created_by or ""):
        yield "a writer that is not Arrow"
    footer = io.BytesIO()
    facts.write_metadata_file(footer)
    if len(footer.getvalue()) != facts.serialized_size + FRAME_BYTES:
        yield "a footer with more than Parquet's own fields"
    chunks = [facts.row_group(i).column(j) for i in range(facts.num_row_groups) for j in range(facts.num_columns)]
    if any(getattr(chunk, "metadata", None) for chunk in chunks):
        yield "metadata of a piece of a column"
    strays = _count_strays(path, facts, chunks)
    if strays:
        yield f"{strays:,} bytes that belong to no column"


def _count_strays(path: Path, facts: Any, chunks: list[Any]) -> int:
    """Count the bytes of a Parquet file that belong to no column and to no part of the footer, or to two columns.

    Arrow before version 20 writes the footer's words about a piece of a column a second time behind that piece. Such a
    copy says nothing that the footer does not say, so bytes that the footer holds, as they stand, are not strays.
    """
    end = path.stat().st_size - facts.serialized_size - len(b"size") - len(b"PAR1")
    begins = [
        min(chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset)  # None or 0: none
        for chunk in chunks
    ]
    spans = sorted((begin, begin + chunk.total_compressed_size) for begin, chunk in zip(begins, chunks, strict=True))
    strays, position = 0, len(b"PAR1")
    with path.open("rb") as handle:
        handle.seek(max(end, 0))
        footer = handle.read()
        for begin, behind in [*spans, (end, end)]:
            handle.seek(position)
            if begin < position or handle.read(begin - position) not in footer:
                strays += abs(begin - position)
            position = behind
    return strays


def _repeats_schema(stored: bytes, schema: Any) -> bool:
    """Whether the schema that Arrow keeps in a footer is that of the file, to the byte; it may name items of lists otherwise."""
    import pyarrow as pa

    try:
        kept = pa.ipc.read_schema(pa.py_buffer(stored))
    except (pa.ArrowException, OSError):
        return False
    same = (kept.names, kept.metadata) == (schema.names, schema.metadata) and not [*find_metadata(kept)]
    return same and bool(kept.serialize().to_pybytes() == stored)


def _inspect_labels(manifest: Manifest, release: Release) -> Iterator[str]:
    """Yield what the files of labels hold beyond the codes that were read from them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    label = _label_name(release)
    mark = "" if release.label_column is None else RESERVED
    own = {mark + extra for extra in EXTRAS}
    for path in manifest.label_files:
        schema = pq.read_schema(path)
        for name in own & set(schema.names):
            # Where some rows were not asked, `load_release` has compared which have an answer, and all of it.
            if release.rows is None and pq.read_table(path, columns=[name])[name].null_count:
                yield f"{path.name}: column {name} has missing values"
        text = pa.types.is_string(schema.field(label).type) or pa.types.is_large_string(schema.field(label).type)
        column = pq.read_table(path, columns=[label], read_dictionary=[label] if text else None)[label]
        if pa.types.is_dictionary(column.type):
            known = {str(name) for name in release.classes}
            strange = {str(v) for chunk in column.chunks for v in chunk.dictionary.to_pylist()} - known
            if strange:
                yield f"{path.name}: {len(strange)} values in the dictionary of {label!a} are no classes"
