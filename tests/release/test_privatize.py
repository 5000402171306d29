"""`privatize`: labels in, a release out; charged before anything is drawn, and nothing changed when it refuses."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

import labeldp
from labeldp.accounting import Ledger, fingerprint
from labeldp.channel import Channel, MatrixChannel
from labeldp.errors import BudgetError, LabelDPError, PrivacyError
from labeldp.guarantee import Trust, Unit
from labeldp.random import NoiseKey
from labeldp.release import Release, SensitiveLabels, door, privatize

RR = labeldp.RandomizedResponse
N = 60
PRIOR = np.random.default_rng(1).dirichlet(np.ones(3), N)
TRUE = np.arange(N) % 3


@pytest.mark.parametrize(
    ("classes", "kind"),
    [
        (("no", "yes"), "O"),
        ((False, True), "b"),
        ((10, 20), "i"),
        ((0.5, 1.5), "f"),
        ((1, 2.5), "f"),
        ((b"a", b"b"), "O"),
    ],
)
def test_released_labels_are_the_classes_of_their_codes(classes: tuple[Any, ...], kind: str) -> None:
    true = [classes[i % 2] for i in range(50)]
    release = privatize(SensitiveLabels(true, classes=classes), RR(1.0), rng=3)
    assert release.classes == classes
    assert release.labels.dtype.kind == kind
    assert release.labels.tolist() == [classes[c] for c in release.codes]
    assert set(release.codes.tolist()) == {0, 1}
    exact = privatize(SensitiveLabels(true, classes=classes), RR(math.inf), rng=3)
    assert exact.labels.tolist() == true


def test_a_release_says_what_it_is() -> None:
    release = privatize(SensitiveLabels(TRUE, n_classes=3, name="opinion"), RR(1.5), rng=1, start=7)
    assert release.guarantee.epsilon() == 1.5
    assert release.channel.epsilon <= 1.5
    assert (release.guarantee.unit, release.guarantee.trust) == (Unit.LABEL, Trust.NO_ONE)
    assert (release.label_set, release.start, release.ledger_entry, len(release)) == ("opinion", 7, None, N)
    assert release.mechanism == repr(RR(1.5))
    assert release.created.endswith("+00:00")
    assert release.codes.dtype == np.uint8
    assert release.n_classes == 3
    matrix = release.channel.matrix()
    assert release.expected_accuracy() == pytest.approx(np.diag(matrix).mean())
    assert release.expected_accuracy([1, 0, 0]) == pytest.approx(matrix[0, 0])


@pytest.mark.parametrize(
    ("rng", "seeded"),
    [(None, False), (3, True), (np.int64(3), True), (np.random.default_rng(3), True), (NoiseKey.from_os(), False)],
)
def test_only_noise_from_the_operating_system_is_private(rng: Any, seeded: bool) -> None:
    release = privatize(TRUE, RR(1.0, n_classes=3), rng=rng)
    assert release.seeded is seeded
    assert ("SEEDED, NOT PRIVATE" in repr(release)) is seeded


def test_a_seed_repeats_and_fresh_noise_does_not() -> None:
    labels = np.zeros(256, int)
    one, again = (privatize(labels, RR(0.1, n_classes=2), rng=5).codes for _ in range(2))
    np.testing.assert_array_equal(one, again)
    # Two fresh releases of 256 nearly fair coins agree with probability about 2^-255.
    one, other = (privatize(labels, RR(0.1, n_classes=2)).codes for _ in range(2))
    assert not np.array_equal(one, other)


@pytest.mark.parametrize("mechanism", [RR(1.0, n_classes=3), labeldp.RRWithPrior(1.0), labeldp.RRTopK(1.0, k=2)])
def test_pieces_under_one_key_are_the_whole(mechanism: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the pieces (1, 7, the rest) and whatever the step inside the door."""
    with_prior = not isinstance(mechanism, RR)
    whole = privatize(TRUE, mechanism, prior=PRIOR if with_prior else None, rng=9).codes
    monkeypatch.setattr(door, "STEP", 5)
    for edges in ([0, N], [0, 1, 8, N], list(range(N + 1))):
        pieces = [
            privatize(
                SensitiveLabels(TRUE[a:b], n_classes=3),
                mechanism,
                prior=PRIOR[a:b] if with_prior else None,
                rng=9,
                start=a,
            ).codes
            for a, b in itertools.pairwise(edges)
        ]
        np.testing.assert_array_equal(np.concatenate(pieces), whole)


def test_more_labels_than_a_step_use_each_word_once() -> None:
    n = door.STEP + 1000
    release = privatize(np.zeros(n, np.uint8), RR(0.5, n_classes=2), rng=2)
    # Were words repeated, the second step would repeat the first.
    assert not np.array_equal(release.codes[:1000], release.codes[door.STEP :])
    stated = release.channel.matrix()[0, 1]
    ones = int(release.codes.sum())
    # An exact binomial test at 1e-7 over the choice of seed, which is fixed.
    assert min(binom.cdf(ones, n, stated), binom.sf(ones - 1, n, stated)) > 5e-8


def test_take_is_the_release_of_those_rows(release: Release) -> None:
    part = release.take(np.array([3, 1, 30]))
    assert part.codes.tolist() == release.codes[[3, 1, 30]].tolist()
    assert part.guarantee == release.guarantee
    np.testing.assert_array_equal(part.channel.matrix(2), release.channel.matrix(30))


def test_outputs_that_are_not_labels_have_no_labels(make_release: Callable[[str], Release]) -> None:
    release = make_release("outputs that are not labels")
    assert release.codes.max() < release.channel.n_outputs
    with pytest.raises(LabelDPError, match=r"outputs are not labels\. Use release\.codes and release\.channel"):
        release.labels  # noqa: B018


# The ledger


def test_the_ledger_is_charged_with_what_is_released(recorder: Callable[..., Any]) -> None:
    ledger = recorder()
    labels = SensitiveLabels(TRUE, n_classes=3, name="opinion", row_ids=np.arange(100, 100 + N))
    release = privatize(labels, RR(1.25), ledger=ledger, rng=1, start=4)
    rows = fingerprint("opinion", n_rows=N, start=4, row_ids=np.arange(100, 100 + N))
    expected = {"guarantee": release.guarantee, "label_set": "opinion", "rows": rows, "n_rows": N, "seeded": True}
    assert ledger.charges == [{**expected, "mechanism": repr(RR(1.25)), "parts": (), "note": ""}]
    assert release.ledger_entry == 42


def test_a_refused_charge_draws_nothing(recorder: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []
    real = NoiseKey.words

    def spied(self: NoiseKey, *, start: int, count: int, stream: int = 0) -> Any:
        drawn.append(count)
        return real(self, start=start, count=count, stream=stream)

    monkeypatch.setattr(NoiseKey, "words", spied)
    refusing = recorder(refusal=BudgetError("spent"))
    with pytest.raises(BudgetError, match="spent"):
        privatize(TRUE, RR(1.0, n_classes=3), ledger=refusing)
    with pytest.raises(BudgetError, match="spent"):
        labeldp.measure(TRUE, labeldp.LabelCounts(), epsilon=1.0, ledger=refusing)
    assert len(refusing.charges) == 2
    assert drawn == []
    privatize(TRUE, RR(1.0, n_classes=3), ledger=recorder())
    assert drawn == [N]  # the spy does see a draw


def test_the_real_ledger_stops_at_the_budget(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite", budget=2.0)
    labels = SensitiveLabels(TRUE, n_classes=3, name="opinion")
    first = privatize(labels, RR(1.25), ledger=ledger)
    second = labeldp.measure(labels, labeldp.LabelCounts(), epsilon=0.5, ledger=ledger)
    assert first.ledger_entry is not None
    assert second.ledger_entry is not None
    assert first.ledger_entry < second.ledger_entry
    with pytest.raises(BudgetError, match="within its budget"):
        privatize(labels, RR(0.5), ledger=ledger)
    assert ledger.remaining("opinion") == pytest.approx(0.25)
    assert privatize(labels, RR(0.25), ledger=ledger).ledger_entry is not None


# What is refused, before the ledger is charged


class Liar(RR):
    """Claims half of what its channel costs."""

    def channel(self, prior: Any = None, *, groups: Any = None, n_classes: int | None = None) -> Channel:
        return RR(2 * self.epsilon).channel(n_classes=n_classes)


@pytest.mark.parametrize(
    ("labels", "mechanism", "more", "message"),
    [
        (TRUE, "RR", {}, r"^privatize: `mechanism` must be a mechanism, got 'RR'"),
        (TRUE, RR, {}, r"^privatize: `mechanism` must be a mechanism"),
        (TRUE, RR(1.0), {"start": -1}, r"^privatize: `start` must be an integer in \[0, \d+\], got -1"),
        (
            TRUE,
            RR(1.0),
            {"start": 2**64},
            r"^privatize: `start` must be an integer in \[0, \d+\], got 18446744073709551616",
        ),
        (TRUE, RR(1.0), {"start": 0.0}, r"^privatize: `start` must be an integer in \[0, \d+\], got 0\.0"),
        (
            TRUE,
            RR(1.0),
            {"rng": "seed"},
            r"^privatize: `rng` must be None, an int or a numpy.random.Generator, got 'seed'",
        ),
        (TRUE, RR(1.0), {"rng": True}, r"^privatize: `rng` must be None"),
        (TRUE, RR(1.0), {"prior": PRIOR}, r"^RandomizedResponse: `prior` must be left out"),
        (TRUE, RR(1.0, n_classes=2), {}, r"`labels` must be among the classes, got another one in row 2 "),
        (SensitiveLabels(TRUE), RR(1.0, n_classes=2), {}, r"`n_classes` must be 2, as the mechanism says, got 3"),
        (np.zeros(5, int), RR(1.0), {}, r"`n_classes` must be an integer in \[2, \d+\], got 1"),
        (
            TRUE[:-1],
            labeldp.RRWithPrior(1.0),
            {"prior": PRIOR},
            r"^privatize: `prior` must have one row per label, got 60 for 59",
        ),
        (
            TRUE,
            labeldp.RRWithPrior(1.0),
            {"prior": PRIOR[:2], "groups": np.zeros(N + 1, int)},
            r"^privatize: `groups` must have one row per label, got 61 for 60 labels",
        ),
        (
            TRUE,
            labeldp.RRWithPrior(1.0),
            {"prior": PRIOR * 2},
            r"^RRWithPrior: `prior` must have rows .* got a sum of 2",
        ),
        (TRUE, labeldp.RRTopK(1.0, k=2), {}, r"^RRTopK: `prior` must be given, got None"),
        (TRUE, labeldp.RRTopK(1.0, k=2), {"prior": np.full((N, 4), 0.25), "labels": 1}, None),
        (TRUE, Liar(0.5), {}, r"^privatize: .* claims epsilon = 0\.5, but its channel has .* Nothing was drawn\."),
    ],
)
def test_bad_input_is_refused_before_anything_is_charged_or_drawn(
    labels: Any, mechanism: Any, more: dict[str, Any], message: str | None, recorder: Callable[..., Any]
) -> None:
    ledger = recorder()
    if message is None:  # four columns for labels that are boxed with three classes
        labels, more, message = SensitiveLabels(TRUE), {"prior": more["prior"]}, r"`prior` must have 3 columns"
    generator = np.random.default_rng(1)
    before = TRUE.copy(), PRIOR.copy()
    with pytest.raises(LabelDPError, match=message) as caught:
        privatize(labels, mechanism, ledger=ledger, **{"rng": generator, **more})
    assert isinstance(caught.value, PrivacyError) == isinstance(mechanism, Liar)
    assert ledger.charges == []
    np.testing.assert_array_equal(TRUE, before[0])
    np.testing.assert_array_equal(PRIOR, before[1])


def test_a_channel_that_rules_a_label_out_cannot_pass_as_private(fixed: Callable[..., Any]) -> None:
    identity = MatrixChannel(np.eye(3), outputs_are_labels=True)
    assert identity.epsilon == math.inf
    with pytest.raises(PrivacyError, match="but its channel has inf"):
        privatize(SensitiveLabels(TRUE), fixed(identity))
