"""The explorer: one page where epsilon, classes, prior and rows can be moved, and what becomes of labels is seen.

>>> page = explorer_page(Settings(epsilon=2.0, prior=(0.6, 0.3, 0.1), rows=5000))
>>> (
...     "<title>labeldp explorer</title>" in page,
...     "http" in page.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", ""),
... )
(True, False)

It shows the mechanisms side by side at one epsilon, and against epsilon: labels that are right, what an attacker gains, and what
an answer tells a learner. The prior is geometric (class j + 1 is e^-sharpness times as likely as class j), written by the
visitor, or that of a release (`settings_of_release`): its released prior, or the base rates that its labels tell.

Design notes. The page is one file that opens from disk and asks no network for anything; there is no server. Its policy lets
run the one script whose hash it names, and nothing else. The script computes the channels itself (assets/mechanisms.js), so
there are two copies of each formula; tests/report/test_explorer.py runs the script in node, or else in chromium, and compares
every number with the library's. The settings stand in the address behind the #, which browsers send to no one, so that an
address with them can be shared. Names of classes come from a file: they are data in the page, and are written as text.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import re
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

import labeldp
from labeldp.arrays import Floats
from labeldp.channel import NumericChannel
from labeldp.errors import Described, invalid
from labeldp.release import Release, load_release
from labeldp.report.page import style_sheet
from labeldp.report.rates import MOST_ANSWERS, evenly_spaced
from labeldp.validate import check_integer, check_real

OWNER = "explorer"
#: The most classes: those whose blocks are kept by the few labels of `labeldp.channel.sets`.
MOST_CLASSES = 16
#: Where the slider of epsilon ends.
LEAST_EPSILON, MOST_EPSILON = 0.1, 10.0
MOST_SHARPNESS = 5.0
LEAST_ROWS, MOST_ROWS = 10, 10**9
#: Letters of a class's name that are shown.
LONGEST_NAME = 40
#: In the head of every page, in front of its style.
TITLE = "<title>labeldp explorer</title>"
POLICY = "default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Where the page starts; values outside of its sliders are refused.

    Parameters
    ----------
    epsilon : float
        The privacy of each label, in [0.1, 10].
    n_classes : int
        From 2 to 16.
    sharpness : float
        How fast the prior falls from class to class, in [0, 5]; 0 is a uniform prior.
    k : int
        Candidates of RRTop-k, from 1 to 16; more than there are classes means all of them.
    rows : int
        How many labels there are; for ClusterRR, in one cluster.
    prior : tuple of float, optional
        Shares of 2 to 16 classes, in place of `n_classes` and `sharpness`.
    names : tuple of str
        What the classes of the prior are called; numbers if left out.
    source : str
        Where the prior comes from, in words.
    """

    epsilon: float = 1.0
    n_classes: int = 5
    sharpness: float = 0.7
    k: int = 2
    rows: int = 1000
    prior: tuple[float, ...] | None = None
    names: tuple[str, ...] = ()
    source: str = ""

    def __post_init__(self) -> None:
        for name, low, high in (
            ("epsilon", LEAST_EPSILON, MOST_EPSILON),
            ("sharpness", 0.0, MOST_SHARPNESS),
        ):
            value = check_real(OWNER, name, getattr(self, name))
            if not low <= value <= high:
                raise invalid(OWNER, name, f"be in [{low:g}, {high:g}]", got=value)
            object.__setattr__(self, name, value)
        check_integer(OWNER, "n_classes", self.n_classes, least=2, most=MOST_CLASSES)
        check_integer(OWNER, "k", self.k, least=1, most=MOST_CLASSES)
        check_integer(OWNER, "rows", self.rows, least=LEAST_ROWS, most=MOST_ROWS)
        if self.prior is not None:
            self._check_prior(self.prior)

    def _check_prior(self, prior: tuple[float, ...]) -> None:
        """Refuse what is no list of shares, and bring it to a sum of one."""
        if not 2 <= len(prior) <= MOST_CLASSES:
            fix = "Merge rare classes."
            raise invalid(OWNER, "prior", f"have 2 to {MOST_CLASSES} classes", got=Described(f"{len(prior)}"), fix=fix)
        shares = np.array([check_real(OWNER, "prior", share) for share in prior])
        if shares.min() < 0 or not shares.sum() > 0:
            raise invalid(OWNER, "prior", "hold shares that are not negative, one above 0", got=prior)
        object.__setattr__(self, "prior", tuple((shares / shares.sum()).tolist()))
        object.__setattr__(self, "n_classes", len(prior))

    @property
    def belief(self) -> Floats:
        """The probability of each class: the prior as given, or the geometric one."""
        if self.prior is not None:
            return np.array(self.prior)
        weight = np.exp(-self.sharpness * np.arange(self.n_classes))
        answer: Floats = weight / weight.sum()
        return answer


def is_explorer(path: Path) -> bool:
    """Whether a file is a page of this chapter: nothing is in it that cannot be made again."""
    try:
        with path.open("rb") as file:
            return TITLE.encode() in file.read(4096)
    except OSError:
        return False


def settings_of_release(directory: str | os.PathLike[str]) -> Settings:
    """Return the settings of a release: its classes, rows and epsilon, and what it tells about the shares of its labels.

    The shares are those of its released prior, or else the base rates that make its labels likeliest; nothing is spent. A
    release of numbers, or of more than 16 classes, is refused.
    """
    release = load_release(directory)
    if isinstance(release.channel, NumericChannel) or release.n_classes > MOST_CLASSES:
        got = Described("numbers" if isinstance(release.channel, NumericChannel) else f"{release.n_classes:,} classes")
        fix = "`labeldp report` tells about every release."
        raise invalid(OWNER, "release", f"have 2 to {MOST_CLASSES} classes", got=got, fix=fix)
    shares, how = _shares(release)
    epsilon = release.channel.epsilon
    near = round(min(max(epsilon, LEAST_EPSILON), MOST_EPSILON), 1)
    return Settings(
        epsilon=near,
        rows=min(max(release.rows_in_all, LEAST_ROWS), MOST_ROWS),
        prior=tuple(shares.tolist()),
        names=tuple(str(name)[:LONGEST_NAME] for name in release.classes),
        source=(
            f"The settings are those of the release of {release.label_set}: {release.rows_in_all:,} rows, epsilon "
            f"{'inf' if math.isinf(epsilon) else f'{epsilon:.4g}'} of its answers (the slider has tenths), and the shares of classes {how}. "
            "Nothing was spent on them."
        ),
    )


def _shares(release: Release) -> tuple[Floats, str]:
    """Return the shares of the classes that a release tells, and how, in words."""
    if release.prior is not None and release.prior_index is not None:
        weights = np.bincount(release.prior_index, minlength=len(release.prior))
        return np.average(np.asarray(release.prior, np.float64), axis=0, weights=weights), "of its released prior"
    from labeldp.learn.crossfit import base_rates  # it loads the learners, which a page without a release does without

    part = release.take(evenly_spaced(len(release), MOST_ANSWERS))
    likelihood = np.asarray(part.channel.likelihood(part.codes), np.float64)
    return base_rates(likelihood), "that make its answers likeliest"


def explorer_page(settings: Settings | None = None) -> str:
    """Return the page as text: one self-contained HTML file."""
    given = settings if settings is not None else Settings()
    script = _asset("mechanisms.js") + _asset("app.js")
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    parts = {
        "policy": escape(POLICY.format(digest=digest), quote=True).replace("&#x27;", "'"),
        "style": style_sheet() + _asset("explorer.css"),
        "version": escape(labeldp.__version__),
        "start": _start_text(given),
        "script": script,
    }
    # In one pass: what is put in is not looked through for places again.
    return re.sub(r"\{(" + "|".join(parts) + r")\}", lambda place: parts[place[1]], _asset("page.html"))


def _start_text(settings: Settings) -> str:
    """Return where the page starts as JSON that cannot end the element it stands in."""
    values: dict[str, Any] = {
        name: getattr(settings, name) for name in ("epsilon", "n_classes", "sharpness", "k", "rows")
    }
    values["prior"] = "" if settings.prior is None else ", ".join(f"{share:.4g}" for share in settings.prior)
    start = {"settings": values, "names": list(settings.names), "source": settings.source}
    return json.dumps(start, allow_nan=False).replace("<", "\\u003c")


@cache
def _asset(name: str) -> str:
    return (resources.files(__package__) / "assets" / name).read_text(encoding="utf-8")
