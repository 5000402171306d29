"""`release_page`: everything about one release that its reader should know, on one page.

>>> import pathlib, tempfile
>>> import labeldp
>>> folder = tempfile.TemporaryDirectory()
>>> place = pathlib.Path(folder.name) / "release"
>>> labeldp.privatize([0, 1, 1, 0], labeldp.RandomizedResponse(1.0, n_classes=2), rng=7).save(place)
>>> text = release_page(place, interactive=False)
>>> "73.2%" in text, "Not private" in text  # a seed stands behind this one
(True, True)
>>> folder.cleanup()

Design notes. The release is loaded as any reader loads it: every checksum and the promise are checked first, and a page
about a damaged release is never made. Of ten million rows only counts are taken. The page holds no label of a row, and
no number on it was computed from a raw label.

The sections that say what was protected, from whom, and what anyone could infer before and after.

>>> from labeldp.guarantee import Guarantee
>>> [section.title for section in (inference(Guarantee.pure(1.0)),)]
['What anyone could infer']

The sections about what others wrote down: the ledger, an audit, a model, and the exact versions of everything.
"""

from __future__ import annotations

import json
import math
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import labeldp
from labeldp.accounting import Ledger
from labeldp.guarantee import Guarantee, advantage_bound, best_guess, format_up
from labeldp.release import Release, load_release
from labeldp.report.figures import against_epsilon, changes, rates, stages
from labeldp.report.page import page
from labeldp.report.plots import Block, Facts, Lines, Section, Series, Table
from labeldp.report.words import cost, in_words, largest_belief, percent, right_guesses


def release_page(
    directory: str | os.PathLike[str],
    *,
    ledger: Ledger | None = None,
    audit: dict[str, Any] | None = None,
    model_facts: dict[str, Any] | None = None,
    interactive: bool = True,
) -> str:
    """Return one self-contained HTML page about a release directory.

    `ledger`: where the release was charged; its chain is checked. `audit`: the JSON object that `labeldp audit` writes.
    `model_facts`: `facts_` of a loaded model. `interactive`: embed Plotly (2 MB), or leave static drawings alone.
    """
    release = load_release(directory)
    manifest = json.loads((Path(directory) / "release.json").read_text(encoding="utf-8"))
    found = rates(release)
    sections = [
        protection(release, manifest),
        inference(release.guarantee),
        changes(release, found),
        against_epsilon(release, found) if release.channel.outputs_are_labels else None,
        stages(release),
        model_section(model_facts, release),
        ledger_section(release, ledger),
        audit_section(audit, release),
        versions_section(release, manifest),
    ]
    return page(
        f"Release report: {release.label_set}",
        sections=[section for section in sections if section is not None],
        lead=f"{len(release):,} labels, {release.guarantee}. {_lead(release.guarantee)}",
        seeded=release.seeded,
        interactive=interactive,
    )


def _lead(promise: Any) -> str:
    words = in_words(*cost(promise))
    return f"{words[0].upper()}{words[1:]}."


#: Beliefs that somebody may have had before: from a rare illness to near certainty.
BELIEFS = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99)
#: Points of the drawn curve, in percent.
CURVE = (0.0, 1.0, 2.5, 5.0, *(float(p) for p in range(10, 91, 5)), 95.0, 97.5, 99.0, 100.0)

FROM_WHOM = {
    "no one": "From everyone, whoever collected the labels included: each was randomized before anyone else saw it.",
    "a curator": "From everyone but the curator who collected the labels: she sees them and must be trusted.",
}


def protection(release: Release, manifest: dict[str, Any]) -> Section:
    """Return what was protected, from whom, by what, and what that stands on."""
    promise = release.guarantee
    column = manifest.get("label_column")
    trust = promise.trust.words
    pairs = [
        ("Protected", f"{len(release):,} labels" + (f" of column {column}" if column else "")),
        ("Not protected", "every other column of the table: features are public" if column else "the features"),
        ("Unit", f"{promise.unit.sentence}: data that differ by so much look alike"),
        ("From whom", FROM_WHOM.get(trust, f"From everyone but {trust}, who must be trusted.")),
        ("Classes", _listed(release.classes)),
        ("Promise", str(promise)),
        ("Mechanism", release.mechanism),
        ("Label set", release.label_set),
        *((f"Part: {name}", str(part)) for name, part in promise.parts),
        *(("Assumes", text) for text in promise.assumptions),
    ]
    return Section(title="What was protected, and from whom", blocks=(Facts(pairs=tuple(pairs)),))


def _listed(classes: tuple[Any, ...], most: int = 12) -> str:
    names = ", ".join(str(name) for name in classes[:most])
    rest = len(classes) - most
    return f"{len(classes):,}: {names}" + (f" and {rest:,} more" if rest > 0 else "")


def inference(promise: Guarantee) -> Section:
    """Return epsilon in plain words: guesses and beliefs about one label, before and after the release."""
    epsilon, delta = cost(promise)
    title = "What anyone could infer"
    if math.isinf(epsilon):
        return Section(title=title, blocks=(f"{in_words(epsilon)[0].upper()}{in_words(epsilon)[1:]}.",))
    words = in_words(epsilon, delta)
    blocks: list[Block] = [f"{words[0].upper()}{words[1:]}.", _factor(epsilon, delta), _beliefs(epsilon, delta)]
    if delta == 0:
        blocks.append(_curve(epsilon))
    blocks.append(
        "These are bounds for somebody who knows everything else, all other labels included, whatever she does with "
        "the release. They are about what this release adds: features that reveal a label reveal it without any release."
    )
    return Section(title=title, blocks=tuple(blocks))


def _factor(epsilon: float, delta: float) -> str:
    odds = format_up(math.exp(epsilon)) if epsilon < 700 else "more than 1e300"
    gain = percent(advantage_bound(epsilon, delta=delta), up=True)
    if delta == 0:
        return (
            f"Epsilon is {format_up(epsilon)}: the odds of any two values of one label change by a factor of at most {odds} "
            f"(e to the power epsilon). A test between the two beats chance by at most {gain}."
        )
    return (
        f"Epsilon is {format_up(epsilon)} at delta = {delta:g}: but for a part of probability delta, what is seen is at most "
        f"{odds} times likelier for one value of a label than for another. A test between two beats chance by at most "
        f"{gain}."
    )


def _beliefs(epsilon: float, delta: float) -> Table:
    """A belief before, the share of right guesses before and after, and (where delta is 0) the largest belief after."""
    columns = ["belief in one of two values", "right guesses before", "right guesses after, at most"]
    columns += ["largest belief after"] if delta == 0 else []
    rows = []
    for prior in BELIEFS:
        row = [percent(prior), percent(max(prior, 1 - prior)), percent(right_guesses(prior, epsilon, delta), up=True)]
        rows.append((*row, percent(largest_belief(prior, epsilon), up=True)) if delta == 0 else tuple(row))
    caption = "Before and after the release, for someone who must decide between two values of one label"
    return Table(caption=caption, columns=tuple(columns), rows=tuple(rows), numeric=tuple(range(len(columns))))


def _curve(epsilon: float) -> Lines:
    after = tuple(100 * largest_belief(p / 100, epsilon) for p in CURVE)
    half = percent(best_guess(epsilon), up=True)
    return Lines(
        title="The largest belief in a value after the release, against the belief before",
        series=(Series(name="after, at most", x=CURVE, y=after), Series(name="before", x=CURVE, y=CURVE)),
        x_title="belief before (%)",
        y_title="belief after (%)",
        alt=f"A curve above the diagonal: a belief of 50% becomes at most {half}.",
    )


#: Packages whose version may change a number on the page.
PACKAGES = ("numpy", "scipy", "scikit-learn", "pyarrow", "numba", "plotly")


def ledger_section(release: Release, ledger: Ledger | None) -> Section:
    """Return what the ledger says of these labels, and whether this release stands in it."""
    title = "Ledger"
    if ledger is None:
        noted = (
            "" if release.ledger_entry is None else f" The release says that it is entry {release.ledger_entry} of one."
        )
        text = (
            f"No ledger was given to this report: what other releases of the same labels cost is not known here.{noted}"
        )
        return Section(title=title, blocks=(text,))
    last = ledger.verify()
    name = release.label_set
    limit, used = ledger.budget(name), ledger.spent(name)
    delta = 0.0 if limit is None else limit[1]
    facts = Facts(
        pairs=(
            ("Label set", name),
            ("Spent", "nothing" if used is None else format_up(used.epsilon(delta)) + _at(delta)),
            ("Budget", "none was set" if limit is None else format_up(limit[0]) + _at(delta)),
            ("Left", "no limit" if limit is None else f"{ledger.remaining(name):.6g}"),
            ("Record", f"intact; the chain ends in {last[:16] or 'nothing'}"),
            ("This release", _found(release, ledger)),
        )
    )
    return Section(title=title, blocks=(facts, _entries(ledger, name)))


def _found(release: Release, ledger: Ledger) -> str:
    """Say whether the release was charged here, as what it is."""
    if release.ledger_entry is None:
        return "does not name an entry: it was made without a ledger"
    entry = next((e for e in ledger.entries() if e.id == release.ledger_entry), None)
    if entry is None:
        return f"names entry {release.ledger_entry}, which this ledger does not have"
    same = (entry.label_set, entry.n_rows, entry.guarantee) == (release.label_set, len(release), release.guarantee)
    return f"entry {entry.id}, " + ("as charged" if same else "which was charged for something else")


def _entries(ledger: Ledger, name: str) -> Table:
    rows = []
    for entry in ledger.entries(name):
        epsilon, delta = cost(entry.guarantee)
        mark = "; SEEDED, NOT PRIVATE" if entry.seeded else ""
        when = entry.when[:16].replace("T", " ")
        rows.append((str(entry.id), when, f"{entry.n_rows:,}", format_up(epsilon) + _at(delta), entry.mechanism + mark))
    columns = ("entry", "when (UTC)", "rows", "epsilon", "mechanism")
    caption = f"Every release of label set {name}, oldest first; they add up"
    return Table(caption=caption, columns=columns, rows=tuple(rows), numeric=(2,))


def _at(delta: float) -> str:
    return f" at delta {delta:g}" if delta else ""


def audit_section(found: dict[str, Any] | None, release: Release) -> Section:
    """Return an audit's checks and its lower bound; keys that it does not have are left out."""
    title = "Audit"
    if found is None:
        return Section(title=title, blocks=("No audit was given to this report. `labeldp audit` makes one.",))
    checks = [check for check in found.get("checks") or [] if isinstance(check, dict)]
    passed = found.get("passed", bool(checks) and all(check.get("passed") for check in checks))
    failed = sum(not check.get("passed") for check in checks)
    verdict = "Every check passed." if passed else f"FAILED: {failed} of {len(checks)} checks."
    blocks: list[Block] = [f"{verdict} A failed check is evidence; a passed one promises nothing."]
    claims = dict(found.get("claims") or {})
    known = {"guarantee": str(release.guarantee), "mechanism": release.mechanism, "label_set": release.label_set}
    if any(name in claims and claims[name] != text for name, text in known.items()):
        blocks.insert(0, "This audit is NOT of this release: what it says was claimed is something else.")
    pairs = [(f"Claimed {name.replace('_', ' ')}", _text(value)) for name, value in claims.items()]
    bound, sure = found.get("lower_bound"), found.get("confidence")
    if bound is not None:
        confidence = f", with confidence {percent(sure)}" if isinstance(sure, (int, float)) else ""
        pairs.append(("Lower bound on epsilon", f"{_text(bound)}{confidence}"))
    if pairs:
        blocks.append(Facts(pairs=tuple(pairs)))
    if checks:
        rows = tuple(
            (_text(c.get("name")), "passed" if c.get("passed") else "FAILED", _text(c.get("detail", "")))
            for c in checks
        )
        blocks.append(Table(caption="Checks", columns=("check", "result", "what it rests on"), rows=rows))
    return Section(title=title, blocks=tuple(blocks))


def _text(value: Any) -> str:
    """Return a JSON value in a few words; numbers in six digits."""
    if isinstance(value, float):
        return f"{value:.6g}" if math.isfinite(value) else str(value)
    return "none" if value is None else str(value)


def model_section(facts: dict[str, Any] | None, release: Release) -> Section | None:
    """Return what a saved model says of itself: what it learned from, in which stages, and its promise."""
    if facts is None:
        return None
    from labeldp.guarantee import Guarantee

    promise = Guarantee.from_json(facts["guarantee"]) if "guarantee" in facts else None
    pairs = [
        ("Promise", "none: it is not a model of labeldp's learners" if promise is None else str(promise)),
        ("Mechanism", _text(facts.get("mechanism"))),
        ("Label set", _text(facts.get("label_set"))),
        ("Learned from", f"{facts['n_examples']:,} labels" if "n_examples" in facts else _text(facts.get("source"))),
        (
            "Features",
            f"{len(facts['features']):,}: {', '.join(map(str, facts['features'][:12]))}"
            if facts.get("features")
            else "not noted",
        ),
        ("Of this release", _same(facts, release)),
    ]
    blocks: list[Block] = [Facts(pairs=tuple(pairs))]
    rows = tuple(
        (
            _text(s.get("number")),
            f"{s.get('n_examples', 0):,}",
            _text(s.get("average_k")),
            _share(s.get("expected_accuracy")),
        )
        for s in facts.get("stages") or []
    )
    if rows:
        columns = ("stage", "rows", "candidates on average", "labels expected right")
        blocks.append(Table(caption="The model's stages", columns=columns, rows=rows, numeric=(1, 2, 3)))
    return Section(title="Model", blocks=tuple(blocks))


def _share(value: Any) -> str:
    return percent(value) if isinstance(value, (int, float)) else "not defined"


def _same(facts: dict[str, Any], release: Release) -> str:
    same = facts.get("label_set") == release.label_set and facts.get("created", release.created) == release.created
    return "yes: it adds nothing to what the release cost" if same else "no: its own cost adds to that of the release"


def versions_section(release: Release, manifest: dict[str, Any]) -> Section:
    """Return who wrote the release, what wrote this page, and the checksum of every file."""
    pairs = [
        ("Release made", f"{release.created or 'not noted'} by {manifest.get('made_by', 'an unknown version')}"),
        ("Release format", f"{manifest.get('format')}, version {manifest.get('version')}"),
        ("Report by", f"labeldp {labeldp.__version__}, Python {platform.python_version()}"),
        ("With", ", ".join(f"{name} {_version(name)}" for name in PACKAGES)),
    ]
    sums = {**{name: facts["sha256"] for name, facts in manifest["files"].items()}, "release.json": manifest["sha256"]}
    rows = tuple((name, digest) for name, digest in sums.items())
    table = Table(caption="Checksums (SHA-256), all of them checked", columns=("file", "sha256"), rows=rows)
    return Section(title="Exact versions", blocks=(Facts(pairs=tuple(pairs)), table))


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
