"""The sections about what others wrote down: the ledger, an audit, a model, and the exact versions of everything."""

from __future__ import annotations

import math
import platform
from importlib import metadata
from typing import Any

import labeldp
from labeldp.accounting import Ledger
from labeldp.guarantee import shown
from labeldp.release import Release
from labeldp.report._values import Block, Facts, Section, Table
from labeldp.report._words import cost, percent

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
            ("Spent", "nothing" if used is None else shown(used.epsilon(delta)) + _at(delta)),
            ("Budget", "none was set" if limit is None else shown(limit[0]) + _at(delta)),
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
        rows.append((str(entry.id), when, f"{entry.n_rows:,}", shown(epsilon) + _at(delta), entry.mechanism + mark))
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
