"""The engines on the command line: `labeldp privatize --engine dask`, and jobs that are taken up or thrown away."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import labeldp
from labeldp.cli import app
from labeldp.engines import privatize_table
from labeldp.errors import LabelDPError

pytest.importorskip("distributed", reason="needs labeldp[dask]")

PHRASE = "correct horse battery staple"


def run(*words: object, code: int = 0) -> Any:
    result = CliRunner().invoke(app, ["privatize", *map(str, words)])
    assert result.exit_code == code, result.output + result.stderr
    return result


def halfway(done: int, total: int) -> None:
    raise LabelDPError("the power went.")


def unfinished(folder: Path, **options: Any) -> Path:
    settings: dict[str, Any] = {"label": "level", "to": folder.parent / "out", "epsilon": 1.0, "label_set": "in:level"}
    with pytest.raises(LabelDPError, match=r"kept in"):
        privatize_table(folder, progress=halfway, **settings, **options)
    (place,) = folder.parent.glob(".out.partial-*")
    return place


def test_a_scheduler_by_its_address(folder: Path, cluster: Any, contents: Callable[[Path], dict[str, str]]) -> None:
    """Another process, over TLS, with certificates that dask's configuration names: the commands of docs/scale.md."""
    out = folder.parent
    options = ("--label", "level", "--epsilon", 1, "--seed", 4, "--json")
    assert cluster.address.startswith("tls://")
    with cluster.configured():
        there = run(folder, "--to", out / "a", "--engine", "dask", "--scheduler", cluster.address, *options)
    run(folder, "--to", out / "b", *options)
    assert json.loads(there.stdout)["rows"] == 2_000
    assert contents(out / "a") == contents(out / "b")


def test_a_job_is_taken_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = unfinished(folder, passphrase=PHRASE)
    monkeypatch.setattr("labeldp.engines.job._held", {})  # as in another process
    phrase = folder.parent / "phrase"
    phrase.write_text(PHRASE + "\n")
    options = (folder, "--label", "level", "--epsilon", 1, "--to", folder.parent / "out", "--resume", place)
    assert "passphrase" in run(*options, code=2).stderr
    run(*options, "--passphrase-file", phrase)
    assert (folder.parent / "out" / "release.json").is_file()
    assert not place.exists()


def test_a_job_is_thrown_away_without_other_options(folder: Path) -> None:
    place = unfinished(folder, keep_unfinished=True)
    assert "discarded" in run("--discard", place).stderr
    assert not place.exists()
    assert "unfinished job" in run("--discard", place, code=2).stderr


LADDER = """
from dataclasses import dataclass
import numpy as np
import labeldp

@dataclass(frozen=True, kw_only=True)
class Ladder(labeldp.mechanisms.Mechanism):
    epsilon: float
    n_classes: int

    @property
    def guarantee(self):
        return labeldp.Guarantee.pure(self.epsilon)

    def channel(self, prior=None, *, groups=None, n_classes=None):
        steps = np.arange(self.n_classes)
        weights = np.exp(-self.epsilon / (2 * (self.n_classes - 1)) * abs(steps[:, None] - steps))
        return labeldp.MatrixChannel(weights / weights.sum(axis=1, keepdims=True), outputs_are_labels=True)
"""


class TestMechanisms:
    """`--mechanism`: our names, a module's, and what cannot be meant."""

    @pytest.mark.parametrize(
        ("words", "mechanism", "options"),
        [
            (("rr",), labeldp.RandomizedResponse(1.0), {}),
            (
                ("rr-top-k", "--mechanism-option", "k=2", "--prior-columns", "p_high,p_low,p_middle"),
                labeldp.RRTopK(1.0, k=2),
                {"prior_columns": ["p_high", "p_low", "p_middle"]},
            ),
            (
                ("cluster-rr", "--groups", "site", "--mechanism-option", "prune=True"),
                labeldp.mechanisms.ClusterRR(1.0, prune=True),
                {"groups": "site"},
            ),
            (
                ("optimal", "--mechanism-option", "objective=UnbiasedReport(values=(1, 2, 3))"),
                labeldp.mechanisms.OptimalResponse(1.0, objective=labeldp.mechanisms.UnbiasedReport(values=(1, 2, 3))),
                {},
            ),
        ],
        ids=lambda value: value[0] if isinstance(value, tuple) else "",
    )
    def test_names(self, words: Any, mechanism: Any, options: Any, folder: Path, contents: Any) -> None:
        out = folder.parent
        run(
            folder,
            "--label",
            "level",
            "--epsilon",
            1,
            "--seed",
            4,
            "--label-set",
            "a",
            "--to",
            out / "a",
            "--mechanism",
            *words,
        )
        privatize_table(folder, label="level", to=out / "b", mechanism=mechanism, rng=4, label_set="a", **options)
        assert contents(out / "a") == contents(out / "b")

    def test_a_module_of_ones_own(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (folder.parent / "own_ladder.py").write_text(LADDER)
        monkeypatch.chdir(folder.parent)
        options = ("--label", "number", "--epsilon", 1, "--to", "out", "--mechanism-option", "n_classes=3", "--json")
        told = json.loads(run(folder, "--mechanism", "own_ladder:Ladder", *options).stdout)
        assert told["mechanism"] == "Ladder(epsilon=1.0, n_classes=3)"
        assert "" not in sys.path[:1]

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (("--mechanism", "rr-topk"), "Did you mean `rr-top-k`"),
            (("--mechanism", "no_such_module:Thing"), "must be importable"),
            (("--mechanism", "labeldp.mechanisms:Nothing"), "must be importable"),
            (("--mechanism", "labeldp.mechanisms:Accuracy"), "--mechanism-option` must suit"),
            (("--mechanism", "builtins:dict"), "must make a mechanism, got builtins:dict: a dict"),
            (("--mechanism", "rr-top-k"), "missing 1 required keyword-only argument: 'k'"),
            (("--mechanism", "rr-top-k", "--mechanism-option", "k"), "must be KEY=VALUE, got 'k'"),
            (("--mechanism-option", "k=2"), "be given with --mechanism-option"),
            (("--mechanism", "cluster-rr"), "`groups` must be given"),
            (("--mechanism", "cluster-rr", "--groups", "sites"), "Did you mean `site`"),
        ],
        ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
    )
    def test_refusals(self, words: Any, message: str, folder: Path) -> None:
        options = (folder, "--label", "level", "--epsilon", 1, "--to", folder.parent / "out")
        assert message in " ".join(run(*options, *words, code=2).stderr.split())
        assert not (folder.parent / "out").exists()
