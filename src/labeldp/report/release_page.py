"""`release_page`: everything about one release that its reader should know, on one page.

>>> import pathlib, tempfile
>>> import labeldp
>>> folder = tempfile.TemporaryDirectory()
>>> place = pathlib.Path(folder.name) / "release"
>>> labeldp.privatize([0, 1, 1, 0], labeldp.RandomizedResponse(1.0, n_classes=2), rng=7).save(place)
>>> text = release_page(place)
>>> "73.2%" in text, "Not private" in text  # a seed stands behind this one
(True, True)
>>> folder.cleanup()

The sections, in order: what was protected and from whom; what the promise stands on; what anyone could infer before and
after; how labels were changed; the accuracy at other epsilons; the stages; a model that learned from the release, and how good
it is; the ledger; an audit; and the exact versions and checksums of everything. A section about something that was not given says so, or is left out.

Design notes. The release is loaded as any reader loads it: every checksum and the promise are checked first, and a page
about a damaged release is never made. Bounds are rounded up and estimates to the nearest tenth, in words, tables and
drawings alike. Of ten million rows only counts are taken. The page holds no label of a row, and
no number on it was computed from a raw label.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
from typing import Any

import numpy as np

from labeldp.accounting import Ledger
from labeldp.accounting.balance import format_down
from labeldp.channel import NumericChannel
from labeldp.display import list_names
from labeldp.errors import Described, PrivacyError, invalid
from labeldp.guarantee import Guarantee, Unit, best_guess
from labeldp.plots import Bars, Lines, Series
from labeldp.release import Release, load_release
from labeldp.release.manifest import Manifest, read_manifest
from labeldp.release.numbers import say_bounds, say_number
from labeldp.report.page import Block, Facts, Section, Table, page, versions
from labeldp.report.quality import quality_section
from labeldp.report.rates import NumberFacts, Rates, accuracy_against_epsilon, number_facts, rates, set_facts
from labeldp.report.words import (
    as_sentence,
    cost,
    cost_text,
    from_whom,
    in_words,
    largest_belief,
    odds_in_words,
    percent,
    right_guesses,
    unit_rows,
)

#: Beliefs that somebody may have had before: from a rare illness to near certainty.
BELIEFS = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99)
#: Points of the drawn curve, in percent.
CURVE = (0.0, 1.0, 2.5, 5.0, *(float(p) for p in range(10, 91, 5)), 95.0, 97.5, 99.0, 100.0)
#: Classes with a bar or a row of their own.
MOST_BARS = 20
MOST_ROWS = 100


def release_page(
    directory: str | os.PathLike[str],
    *,
    ledger: Ledger | None = None,
    audit: dict[str, Any] | None = None,
    model_facts: dict[str, Any] | None = None,
    evaluation: dict[str, Any] | str | None = None,
) -> str:
    """Return one self-contained HTML page about a release directory.

    Parameters
    ----------
    directory : path
        The release. One that is damaged, or whose promise does not hold, raises `ReleaseError` or `PrivacyError`.
    ledger : Ledger, optional
        Where the release was charged. Its chain is checked, and the page says whether this release stands in it.
    audit : dict, optional
        The JSON object that `labeldp audit --json` writes.
    model_facts : dict, optional
        `facts_` of a loaded model that learned from the release.
    evaluation : dict or str, optional
        How good a model that learned from the release is: `Evaluation.facts`, the object that `labeldp evaluate --json` writes, or
        a text that says why it cannot be told.
    """
    release = load_release(directory)
    manifest = read_manifest(directory)
    found = rates(release)
    sections = [
        protection_section(release),
        assumptions_section(release),
        inference_section(release.guarantee),
        changes_section(release, found),
        other_epsilons_section(release, found) if release.channel.outputs_are_labels else None,
        stages_section(release),
        model_section(model_facts, release),
        None if evaluation is None else quality_section(evaluation),
        ledger_section(release, ledger),
        audit_section(audit, release),
        versions_section(release, manifest),
    ]
    return page(
        f"Release report: {release.label_set}",
        sections=[section for section in sections if section is not None],
        lead=f"{release.rows_in_all:,} labels, {release.guarantee.headline}. {as_sentence(in_words(*cost(release.guarantee)))}",
        seeded=release.seeded,
    )


# --------------------------------------------------------------------------------------- what was protected, how well


def protection_section(release: Release) -> Section:
    """Return what was protected, from whom, by what, and what that stands on."""
    promise = release.guarantee
    column = release.label_column
    pairs = [
        ("Protected", f"{release.rows_in_all:,} labels" + (f" of column {column}" if column else "")),
        *([] if release.rows is None else [("Answered", _answered_text(release))]),
        ("Not protected", "every other column of the table: features are public" if column else "the features"),
        ("Unit", f"{promise.unit.sentence}: tables that differ in this alone can hardly be told apart"),
        *((name.capitalize(), text) for name, text in unit_rows(promise)),
        ("From whom", from_whom(promise)),
        _list_kind(release),
        ("Promise", promise.headline),
        ("Delta", _delta_text(promise)),
        ("Noise", _noise_text(release)),
        ("Mechanism", release.mechanism),
        ("Label set", release.label_set),
        *((f"Part: {name}", part.headline) for name, part in promise.parts),
    ]
    return Section(title="What was protected, and from whom", blocks=(Facts(pairs=tuple(pairs)),))


def assumptions_section(release: Release) -> Section:
    """Return what the promise stands on: its assumptions, and what was done to labels before they were randomized."""
    assumed = release.guarantee.assumptions
    lead = (
        "The promise holds if each of these holds. No computation can check them; whoever made the release stands for them."
        if assumed
        else "The promise names no assumption: it follows from the mechanism and from secret noise alone."
    )
    pairs = [
        *(("Assumes", text) for text in assumed),
        *(("Done to each label before", text) for text in release.label_notes),
    ]
    blocks: tuple[Block, ...] = (lead, Facts(pairs=tuple(pairs))) if pairs else (lead,)
    return Section(title="What the promise stands on", blocks=blocks)


def _answered_text(release: Release) -> str:
    """Return how many rows have an answer, where some have none."""
    return (
        f"{len(release):,} of {release.rows_in_all:,} rows; the others of the same persons were not asked, and nothing was "
        "released about them"
    )


def _delta_text(promise: Guarantee) -> str:
    """Return what delta is, and what it means."""
    delta = cost(promise).delta
    if delta == 0:
        return "0: the promise has no exception"
    return f"{delta:g}: beyond the factor e^epsilon, probabilities may differ by this much; other deltas have other epsilons"


def _noise_text(release: Release) -> str:
    """Return where the noise came from."""
    if release.seeded:
        return "from a seed: whoever knows or guesses it can take the noise away, so this is NOT private"
    return "from a secret key of the operating system"


def _list_kind(release: Release) -> tuple[str, str]:
    """Return the classes, or what is public of numbers."""
    if not isinstance(release.channel, NumericChannel):
        return "Classes", f"{release.n_classes:,}: {list_names(release.classes)}"
    bounds = say_bounds(release.channel.bounds)
    return "Numbers", f"in [{bounds}], rounded without bias to {release.n_classes:,} levels before they were randomized"


def inference_section(promise: Guarantee) -> Section:
    """Return epsilon in plain words: guesses and beliefs about one label, before and after the release."""
    epsilon, delta = cost(promise)
    title = "What anyone could infer"
    if math.isinf(epsilon):
        return Section(title=title, blocks=(as_sentence(in_words(epsilon)),))
    blocks: list[Block] = [
        as_sentence(in_words(epsilon, delta)),
        odds_in_words(epsilon, delta, what=_GUESSED[promise.unit]),
        _belief_table(epsilon, delta, _GUESSED[promise.unit]),
    ]
    if delta == 0:
        blocks.append(_belief_curve(epsilon))
    blocks.append(
        "These are bounds for somebody who knows everything else, all other labels included, whatever she does with "
        "the release. They are about what this release adds: features that reveal a label reveal it without any release."
    )
    return Section(title=title, blocks=tuple(blocks))


#: What someone must decide between, by the unit of the promise.
_GUESSED = {
    Unit.LABEL: "two values of one label",
    Unit.PERSON: "two versions of all labels of one person",
    Unit.RECORD_ADD_REMOVE: "data with and without one record",
    Unit.RECORD_REPLACE: "two versions of one record",
}


def _belief_table(epsilon: float, delta: float, what: str) -> Table:
    """Return a row per belief before: right guesses before and after, and where delta is 0 the largest belief after."""
    columns = ["belief in one of the two", "right guesses before", "right guesses after, at most"]
    columns += ["largest belief after"] if delta == 0 else []
    rows = []
    for prior in BELIEFS:
        row = [percent(prior), percent(max(prior, 1 - prior)), percent(right_guesses(prior, epsilon, delta), up=True)]
        rows.append((*row, percent(largest_belief(prior, epsilon), up=True)) if delta == 0 else tuple(row))
    caption = f"Before and after the release, for someone who must decide between {what}"
    return Table(caption=caption, columns=tuple(columns), rows=tuple(rows), numeric=tuple(range(len(columns))))


def _belief_curve(epsilon: float) -> Lines:
    # A bound: rounded up here too, so that the drawing and its table say what the table above says.
    after = tuple(min(100.0, math.ceil(1000 * largest_belief(p / 100, epsilon) - 1e-9) / 10) for p in CURVE)
    half = percent(best_guess(epsilon), up=True)
    return Lines(
        title="The largest belief in a value after the release, against the belief before",
        series=(Series(name="after, at most", x=CURVE, y=after), Series(name="before", x=CURVE, y=CURVE)),
        x_title="belief before (%)",
        y_title="belief after (%)",
        alt=f"A curve above the diagonal: a belief of 50% becomes at most {half}.",
    )


# ------------------------------------------------------------------------------------------------ how labels were changed


def changes_section(release: Release, found: Rates) -> Section:
    """Return flip rates, expected accuracy, and how many labels of each class were released.

    The first `MOST_BARS` classes get a bar and the first `MOST_ROWS` a row, so that a thousand classes stay readable.
    Outputs that are not labels have no flip rates: the section then says what they are.
    """
    title = "How labels were changed"
    numbers = number_facts(release)
    if numbers is not None:
        return Section(title="How numbers were changed", blocks=_number_blocks(release, numbers))
    if found.flips is None or found.expected_accuracy is None:
        sets = set_facts(release)
        text = "What was released are not labels but outputs of another kind; learners undo the noise by the channel."
        if sets is not None:
            text = (
                f"What was released are sets of labels. {sets.sentence} Which sets a row could have answered with was settled "
                "without its label; learners use the channel's likelihood of every label."
            )
        return Section(title=title, blocks=(text,))
    blocks: list[Block] = [_expected_words(release, found), _flip_bars(release, found), _class_table(release, found)]
    if found.n_asked is not None:
        blocks.append(
            f"Each example has its own channel: these are averages over {found.n_asked:,} evenly spaced ones."
        )
    return Section(title=title, blocks=tuple(blocks))


def _number_blocks(release: Release, facts: NumberFacts) -> tuple[Block, ...]:
    """Return what an answer says, how answers are spread, and how far they are off at each level."""
    channel = release.channel
    assert isinstance(channel, NumericChannel)
    low, high = facts.bounds
    text = (
        f"Each number was answered with a number whose mean it is, off by {say_number(facts.noise)} in the root mean square for levels "
        "that are equally likely. Answers lie outside of the bounds too: no private answer has a mean at a bound otherwise."
    )
    counts, edges = np.histogram(release.values, bins=MOST_BARS)
    names = tuple(f"{say_number(a)} to {say_number(b)}" for a, b in itertools.pairwise(edges))
    shares = tuple(100 * float(count) / len(release) for count in counts)
    answers = Bars(
        title="Answers, noise included",
        labels=names,
        values=shares,
        x_title="% of rows",
        alt=", ".join(f"{name}: {share:.1f}%" for name, share in zip(names, shares, strict=True)),
    )
    weights = np.bincount(
        np.zeros(1, np.int64) if channel.index is None else channel.index, minlength=len(channel.transition)
    )
    errors = np.sqrt(np.average(channel.variances, axis=0, weights=weights))
    noise = Lines(
        title="How far an answer is from the number, by the number",
        series=(
            Series(name="root mean square", x=tuple(channel.levels.tolist()), y=tuple(errors.tolist())),
            Series(name="half the range", x=(low, high), y=((high - low) / 2,) * 2),
        ),
        x_title="number",
        y_title="distance of the answer",
        alt=f"Between {say_number(errors.min())} and {say_number(errors.max())}.",
    )
    exact = f"{facts.sentence} This is exact, from the channel; whoever knows more before knows more after."
    return (text, exact, answers, noise)


def _expected_words(release: Release, found: Rates) -> str:
    right = percent(found.expected_accuracy or 0.0)
    care = (
        "" if found.prior_flips is None else " It is as good as the prior: one that is mostly noise promises too much."
    )
    return (
        f"{right} of the {len(release):,} released labels are expected to be the true ones, under {found.expected_under}. "
        "This is a forecast from the channel, which is public; no released label was compared with a true one." + care
    )


def _flip_bars(release: Release, found: Rates) -> Bars:
    """Return a bar per class: under the prior where there is one."""
    shown = (found.prior_flips or found.flips or ())[:MOST_BARS]
    pairs = [(str(name), flip) for name, flip in zip(release.classes, shown, strict=False) if not math.isnan(flip)]
    some = f" (the first {len(shown)})" if release.n_classes > len(shown) else ""
    return Bars(
        title=f"How often a label of each class is released as another one{some}",
        labels=tuple(name for name, _ in pairs),
        values=tuple(round(100 * flip, 1) for _, flip in pairs),
        x_title=f"flipped (%), under {found.expected_under}",
        alt=", ".join(f"{name} {percent(flip)}" for name, flip in pairs),
    )


def _class_table(release: Release, found: Rates) -> Table:
    counts = np.bincount(release.codes, minlength=release.n_classes)
    shown = min(release.n_classes, len(found.flips or ()), MOST_ROWS)
    columns = [("flipped, whichever row has it", found.flips or ())]
    if found.prior_flips is not None:
        columns.insert(0, ("flipped, if the prior is right", found.prior_flips))
    rows = tuple(
        (
            str(release.classes[code]),
            *("-" if math.isnan(values[code]) else percent(values[code]) for _, values in columns),
            f"{int(counts[code]):,}",
        )
        for code in range(shown)
    )
    rest = release.n_classes - shown
    caption = "Flip rates, and how often each class was released, noise included"
    return Table(
        caption=caption + (f" ({rest:,} more classes are not listed)" if rest else ""),
        columns=("class", *(name for name, _ in columns), "released as this class"),
        rows=rows,
        numeric=tuple(range(1, len(columns) + 2)),
    )


def other_epsilons_section(release: Release, found: Rates) -> Section:
    """Return the expected accuracy of labels at other epsilons."""
    lines = tuple(
        dataclasses.replace(line, y=tuple(round(value, 1) for value in line.y))
        for line in accuracy_against_epsilon(release)
    )
    own = found.expected_accuracy
    plot = Lines(
        title="Expected accuracy of released labels against epsilon",
        series=lines,
        x_title="epsilon",
        y_title="labels expected right (%)",
        alt=" ".join(
            f"{line.name}: {line.y[0]:.1f}% at {line.x[0]:g}, {line.y[-1]:.1f}% at {line.x[-1]:g}." for line in lines
        ),
        x_log=True,
        references=() if own is None else (("this release", round(100 * own, 1)),),
    )
    text = (
        f"What another budget for the randomized labels would keep, computed from the channels of the library for "
        f"{release.n_classes:,} classes. Where counts or a prior were released too, their own cost comes on top."
    )
    return Section(title="Accuracy against epsilon", blocks=(text, plot))


def stages_section(release: Release) -> Section | None:
    """Return the rows of each stage, or None where all labels were released at once."""
    if release.stage is None:
        return None
    counts = np.bincount(release.stage)
    rows = tuple((str(number), f"{int(count):,}") for number, count in enumerate(counts) if count)
    table = Table(caption="Rows per stage", columns=("stage", "rows"), rows=rows, numeric=(1,))
    text = (
        "Labels were released in turns, each on rows of its own: a model of the earlier ones was the prior of the next. "
        "Stages are disjoint, so that one label is in one of them."
    )
    return Section(title="Stages", blocks=(text, table))


# ------------------------------------------------------------------------------------- what others wrote about it


def model_section(facts: dict[str, Any] | None, release: Release) -> Section | None:
    """Return what a saved model says of itself: what it learned from, in which stages, and its promise.

    A model that learned from this very release adds nothing to its cost; any other is a release of its own, and the
    section says so. None where no model was given.
    """
    if facts is None:
        return None
    promise = Guarantee.from_json(facts["guarantee"]) if "guarantee" in facts else None
    pairs = [
        ("Promise", "none: it is not a model of labeldp's learners" if promise is None else promise.headline),
        *(("Assumes", text) for text in (() if promise is None else promise.assumptions)),
        ("Mechanism", _as_text(facts.get("mechanism"))),
        ("Label set", _as_text(facts.get("label_set"))),
        ("Learned from", f"{facts['n_examples']:,} labels" if "n_examples" in facts else _as_text(facts.get("source"))),
        (
            "Features",
            f"{len(facts['features']):,}: {', '.join(map(str, facts['features'][:12]))}"
            if facts.get("features")
            else "not noted",
        ),
        ("Of this release", _compare_model(facts, release)),
    ]
    blocks: list[Block] = [Facts(pairs=tuple(pairs))]
    told = facts.get("stages") or []
    if told and "noise" in told[0]:
        off = [s.get("noise") for s in told]
        lines = tuple(
            (_as_text(s.get("number")), f"{s.get('n_examples', 0):,}", _as_text(None if v is None else math.sqrt(v)))
            for s, v in zip(told, off, strict=True)
        )
        blocks.append(
            Table(
                caption="The model's stages",
                columns=("stage", "rows", "an answer is off by"),
                rows=lines,
                numeric=(1, 2),
            )
        )
        return Section(title="Model", blocks=tuple(blocks))
    rows = tuple(
        (
            _as_text(s.get("number")),
            f"{s.get('n_examples', 0):,}",
            _as_text(s.get("average_k")),
            _share_text(s.get("expected_accuracy")),
        )
        for s in facts.get("stages") or []
    )
    if rows:
        columns = ("stage", "rows", "classes on average", "expected to be or to hold the true one")
        blocks.append(
            Table(
                caption="The model's stages: candidates of a label, or the classes that a set names",
                columns=columns,
                rows=rows,
                numeric=(1, 2, 3),
            )
        )
    return Section(title="Model", blocks=tuple(blocks))


def _share_text(value: Any) -> str:
    return percent(value) if isinstance(value, (int, float)) else "not defined"


def _compare_model(facts: dict[str, Any], release: Release) -> str:
    same = facts.get("label_set") == release.label_set and facts.get("created", release.created) == release.created
    return "yes: it adds nothing to what the release cost" if same else "no: its own cost adds to that of the release"


def ledger_section(release: Release, ledger: Ledger | None) -> Section:
    """Return what the ledger says of these labels, and whether this release stands in it.

    The chain of the ledger is verified first: a record that was edited raises, and there is no page. Without a ledger the
    section says that the cost of other releases is not known here, and names the entry that the release claims to be.
    """
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
            ("Spent", "nothing" if used is None else cost_text(used.epsilon(delta), delta)),
            ("Budget", "none was set" if limit is None else cost_text(limit[0], delta)),
            ("Left", "no limit" if limit is None else format_down(ledger.remaining(name))),
            ("Record", f"intact; the chain ends in {last[:16] or 'nothing'}"),
            ("This release", _find_entry(release, ledger)),
        )
    )
    return Section(title=title, blocks=(facts, _entry_table(ledger, name)))


def _find_entry(release: Release, ledger: Ledger) -> str:
    """Say whether the release was charged here, as what it is."""
    if release.ledger_entry is None:
        return "does not name an entry: it was made without a ledger"
    entry = next((e for e in ledger.entries() if e.id == release.ledger_entry), None)
    if entry is None:
        return f"names entry {release.ledger_entry}, which this ledger does not have"
    known = getattr(release.ledger_entry, "hash", "")
    if known and known != entry.hash:
        return (
            f"entry {entry.id} of another history: its hash is not in this ledger, which was replaced or written anew"
        )
    same = (entry.label_set, entry.n_rows, entry.guarantee) == (
        release.label_set,
        release.rows_in_all,
        release.guarantee,
    )
    unsure = "" if known else "; the release keeps the entry's number alone, which another release can have too"
    return f"entry {entry.id}, " + ("as charged" if same else "which was charged for something else") + unsure


def _entry_table(ledger: Ledger, name: str) -> Table:
    rows = []
    for entry in ledger.entries(name):
        mark = "; SEEDED, NOT PRIVATE" if entry.seeded else ""
        when = entry.when[:16].replace("T", " ")
        rows.append(
            (str(entry.id), when, f"{entry.n_rows:,}", cost_text(*cost(entry.guarantee)), entry.mechanism + mark)
        )
    columns = ("entry", "when (UTC)", "rows", "epsilon", "mechanism")
    caption = f"Every release of label set {name}, oldest first; they add up"
    return Table(caption=caption, columns=columns, rows=tuple(rows), numeric=(2,))


def audit_section(found: dict[str, Any] | None, release: Release) -> Section:
    """Return an audit's checks and its lower bound on epsilon.

    `found` is the JSON of an audit, which may be an older one or someone else's: keys that it does not have are left out,
    and an audit whose claims are not those of this release is called so before anything else is said. One that read raw labels is
    refused: this page is for anyone, and the figures of the attack are counts of labels without noise.
    """
    title = "Audit"
    if found is None:
        return Section(title=title, blocks=("No audit was given to this report. `labeldp audit` makes one.",))
    measures = found.get("measures")
    attacked = isinstance(measures, dict) and "attack" in measures  # of a version that did not say what it had read
    if found.get("raw_labels") or attacked:
        fix = "Its figures are counts of labels, without noise. Audit the release alone for a page: leave --labels out."
        got = Described("one that was made with --labels")
        raise invalid("report", "audit", "not have read raw labels", got=got, fix=fix, kind=PrivacyError)
    checks = [check for check in found.get("checks") or [] if isinstance(check, dict)]
    passed = found.get("passed", bool(checks) and all(check.get("passed") for check in checks))
    failed = sum(not check.get("passed") for check in checks)
    verdict = "Every check passed." if passed else f"FAILED: {failed} of {len(checks)} checks."
    blocks: list[Block] = [f"{verdict} A failed check is evidence; a passed one promises nothing."]
    claims = dict(found.get("claims") or {})
    known = {"guarantee": release.guarantee.headline, "mechanism": release.mechanism, "label_set": release.label_set}
    if any(name in claims and _first_line(claims[name]) != _first_line(text) for name, text in known.items()):
        blocks.insert(0, "This audit is NOT of this release: what it says was claimed is something else.")
    pairs = [(f"Claimed {name.replace('_', ' ')}", _as_text(value)) for name, value in claims.items()]
    bound, sure = found.get("lower_bound"), found.get("confidence")
    if bound is not None:
        confidence = f", with confidence {percent(sure)}" if isinstance(sure, (int, float)) else ""
        pairs.append(("Lower bound on epsilon", f"{_as_text(bound)}{confidence}"))
    if pairs:
        blocks.append(Facts(pairs=tuple(pairs)))
    if checks:
        rows = tuple(
            (_as_text(c.get("name")), "passed" if c.get("passed") else "FAILED", _as_text(c.get("detail", "")))
            for c in checks
        )
        blocks.append(Table(caption="Checks", columns=("check", "result", "what it rests on"), rows=rows))
    return Section(title=title, blocks=tuple(blocks))


def _first_line(text: Any) -> str:
    """Return the first line of a claim; audits of earlier versions leave out that a pure promise has delta 0."""
    return str(text).split("\n")[0].replace(" at delta = 0 ", " ")


def _as_text(value: Any) -> str:
    """Return a JSON value in a few words; numbers in six digits."""
    if isinstance(value, float):
        return f"{value:.6g}" if math.isfinite(value) else str(value)
    return "none" if value is None else str(value)


def versions_section(release: Release, manifest: Manifest) -> Section:
    """Return who wrote the release, what wrote this page, and the checksum of every file."""
    content = manifest.content
    pairs = [
        ("Release made", f"{release.created or 'not noted'} by {content.get('made_by', 'an unknown version')}"),
        ("Release format", f"{content.get('format')}, version {content.get('version')}"),
        ("Report by", ", ".join(f"{name} {number}" for name, number in versions().items())),
    ]
    rows = tuple(manifest.checksums.items())
    table = Table(caption="Checksums (SHA-256), all of them checked", columns=("file", "sha256"), rows=rows, codes=(1,))
    return Section(title="Exact versions", blocks=(Facts(pairs=tuple(pairs)), table))
