"""Teachers: rows are dealt into parts without a look at them, each part teaches one model, each model votes.

>>> parts = deal_rows(7, n_teachers=3, split=1)
>>> sorted(len(part) for part in parts), sorted(int(row) for part in parts for row in part)
([2, 2, 3], [0, 1, 2, 3, 4, 5, 6])

*Workers.* A worker returns votes, never a model: models of private labels are not kept. Workers are module functions and run
through joblib, so that whatever backend is set (`joblib.parallel_config`) spreads them. They come in blocks, so that votes
are kept and progress is shown between blocks whatever the backend can do. Teachers take random states from `split`, not
from the noise key, so that a resumed run goes on as it began. A teacher learns on one core (`n_jobs` is for using more):
parts are small, and threads of linear algebra then cost more than they save, four times on two cores. Errors and warnings
of a teacher are passed on by their type alone: it learns from raw labels, and its words may quote them into a log.

*Several labels.* In a small part a label may be always or never there. Such a column has nothing to be learned from, and
scikit-learn's estimators refuse it, warn, or drop a column of probabilities. So it is set aside and put back. One column
that varies is handed over with its complement: a single column would be taken for a binary target, of another shape.

>>> import numpy as np
>>> from sklearn.tree import DecisionTreeClassifier
>>> X, Y = np.array([[0.0], [1.0]]), np.array([[0, 1, 0], [1, 1, 0]])
>>> fit_labels(DecisionTreeClassifier(), X, Y).predict(X).tolist()
[[0, 1, 0], [1, 1, 0]]

*Votes on disk*, between a crash and its resumption, are as private as the labels. What is kept: each teacher's votes without
noise (less than the teacher itself would tell), the number that divides the rows into parts, and a digest of data and
settings, so that votes of other data are never counted. The noise key is not kept: a resumed run draws fresh noise, and a
ledger is charged when votes are aggregated, never for training. The folder is made with permissions 0700, its files with
0600, a folder that others may read is refused, and everything is deleted when `fit` has succeeded. Nothing here is
encrypted: use a disk that may hold the labels. Files are arrays without pickles, whole or absent.

>>> import tempfile, pathlib
>>> home = tempfile.TemporaryDirectory()
>>> store = VoteStore.open("demo", pathlib.Path(home.name) / "votes", identity="abc", split=7)
>>> store.save(0, np.array([1, 0]))
>>> VoteStore.open("demo", store.folder, identity="abc", split=8).split, store.load(0).tolist(), store.load(1)
(7, [1, 0], None)
>>> store.discard()
>>> home.cleanup()
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import numpy.typing as npt
import scipy.sparse
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from threadpoolctl import ThreadpoolController

from labeldp.arrays import Array, Float64s, UInt8s
from labeldp.errors import Described, LabelDPError, PrivacyError, ReleaseError, invalid, keep_warnings
from labeldp.random import NoiseKey
from labeldp.release.persons import Persons, check_apart
from labeldp.release.unfinished import hidden_name, is_partial, lock, remove_leftover
from labeldp.untrusted import check_npy, read_json

#: (teacher, its rows, its targets, public points) -> votes
Vote = Callable[[Any, Any, Array, Any], Array]
#: Teachers per worker between two looks at what is done.
PER_WORKER = 4


def collect_votes(
    vote: Vote,
    teacher: Any,
    X: Any,
    targets: Array,
    X_public: Any,
    *,
    n_teachers: int,
    split: int,
    n_jobs: int | None,
    verbose: int,
    store: VoteStore | None,
    persons: Persons | None = None,
) -> Array:
    """Return the votes of all teachers, stacked; those in the store are not asked again.

    Parameters
    ----------
    vote : (teacher, its rows, its targets, public points) -> votes
        `vote_for_class` or `vote_for_labels`; must pickle for joblib's backends.
    teacher : estimator
        Copied for each part.
    X, targets, X_public : arrays
        Private rows with their targets, and the points that are voted on.
    n_teachers : int
        Parts of the private rows.
    split : int
        Decides which row goes to which teacher, and the teachers' random states.
    n_jobs, verbose : int
        Of joblib; 1 or more writes how many teachers have voted to stderr.
    store : VoteStore, optional
        Votes of an interrupted run, to which new ones are added.
    persons : Persons, optional
        Who owns the rows: all rows of a person go to one teacher.
    """
    parts = deal_rows(X.shape[0], n_teachers=n_teachers, split=split, persons=persons)
    votes: dict[int, Array] = {}
    if store is not None:
        votes = {i: kept for i in range(n_teachers) if (kept := store.load(i)) is not None}
    waiting = [i for i in range(n_teachers) if i not in votes]
    block = PER_WORKER * joblib.effective_n_jobs(n_jobs)
    with joblib.Parallel(n_jobs=n_jobs) as pool:
        for start in range(0, len(waiting), block):
            now = waiting[start : start + block]
            jobs = (
                joblib.delayed(vote)(seed_teacher(teacher, i, split=split), X[parts[i]], targets[parts[i]], X_public)
                for i in now
            )
            for i, answer in zip(now, pool(jobs), strict=True):
                votes[i] = answer
                if store is not None:
                    store.save(i, answer)
            if verbose:
                sys.stderr.write(f"PATE: {len(votes)} of {n_teachers} teachers have voted\n")
    return np.stack([votes[i] for i in range(n_teachers)])


def deal_rows(n_rows: int, *, n_teachers: int, split: int, persons: Persons | None = None) -> list[Array]:
    """Return disjoint parts of all rows, equal but for one row, by a random order that depends on `split` alone.

    With `persons` it is they who are dealt, as many to each teacher but for one: no person's rows are in two parts, so that all
    her labels together reach one teacher.

    >>> deal_rows(4, n_teachers=2, split=1, persons=Persons.of([7, 7, 8, 7]))
    [array([2]), array([0, 1, 3])]
    """
    if persons is not None:
        mine = deal_rows(persons.n_persons, n_teachers=n_teachers, split=split)
        parts = [persons.rows_of(np.isin(np.arange(persons.n_persons), one)) for one in mine]
        check_apart(persons, parts)
        return list(parts)
    words = NoiseKey.from_seed(split).child("parts").words(start=0, count=n_rows)
    return [np.sort(part) for part in np.array_split(np.argsort(words[:, 0], kind="stable"), n_teachers)]


def seed_teacher(teacher: Any, index: int, *, split: int) -> Any:
    """Return an unfitted copy whose every `random_state` is a number of its own."""
    model = clone(teacher)
    names = [name for name in sorted(model.get_params(deep=True)) if name.split("__")[-1] == "random_state"]
    words = NoiseKey.from_seed(split).child("teacher", index).words(start=0, count=max(len(names), 1))
    return model.set_params(
        **{name: int(word >> np.uint64(33)) for name, word in zip(names, words[:, 0], strict=False)}
    )


def vote_for_class(teacher: Any, X: Any, codes: Array, X_public: Any) -> Array:
    """Teach on codes of classes and return one code per public point; a part of one class makes a constant teacher."""
    model = teacher if np.unique(codes).size > 1 else DummyClassifier(strategy="most_frequent")
    with one_core(), quiet_failure("PATE"):
        model.fit(X, codes)
        votes = np.asarray(model.predict(X_public))
    if votes.shape != (X_public.shape[0],) or not np.isin(votes, codes).all():
        fix = "It must be a classifier: `predict` returns one of the labels it was fitted on."
        got = Described(f"a prediction of shape {votes.shape}, dtype {votes.dtype}")
        raise invalid("PATE", "teacher", "predict one class per point", got=got, fix=fix)
    return votes.astype(np.int32)


def vote_for_labels(teacher: Any, X: Any, targets: Array, X_public: Any, *, tau: int | None) -> Array:
    """Teach on rows of 0 and 1 and return such rows for the public points, clip_votes to tau labels each."""
    with one_core(), quiet_failure("MultiLabelPATE"):
        model = fit_labels(teacher, X, targets)
        votes = model.predict(X_public)
        return votes if tau is None else clip_votes(votes, model.scores(X_public), tau=tau)


@contextlib.contextmanager
def quiet_failure(owner: str) -> Iterator[None]:
    """Pass on the types of the errors and warnings of a teacher: it learns from raw labels, and its words may quote them."""
    fix = "Its words may quote labels and are not shown: fit the teacher on public data to see them."
    try:
        with keep_warnings() as told:
            yield
    except LabelDPError:
        raise
    except Exception as error:  # noqa: BLE001 - all that a stranger's estimator may raise
        got = Described(f"a {type(error).__name__}")
        raise invalid(owner, "teacher", "learn from its part of the rows", got=got, fix=fix) from None
    for category in told:
        warnings.warn(f"{owner}: a teacher warned ({category.__name__}). {fix}", category, stacklevel=2)


def clip_votes(votes: Array, scores: Array, *, tau: int) -> Array:
    """Return votes with at most tau labels a row: those of the highest score, among equals the first.

    >>> clip_votes(np.array([[1, 1, 0, 1]], np.uint8), np.array([[0.6, 0.9, 0.1, 0.9]]), tau=2).tolist()
    [[0, 1, 0, 1]]
    """
    ranked = np.where(votes == 1, scores, -np.inf)
    order = np.argsort(-ranked, axis=1, kind="stable")[:, :tau]
    kept = np.zeros_like(votes)
    np.put_along_axis(kept, order, 1, axis=1)
    return kept & votes


def one_core() -> Any:
    """Return a context in which neither linear algebra nor OpenMP starts threads."""
    return find_threadpools().limit(limits=1)


@lru_cache(maxsize=1)
def find_threadpools() -> Any:
    """Find the thread pools of this process; a search takes milliseconds, so it is done once."""
    return ThreadpoolController()


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelModel:
    """A fitted multi-label model of the varying columns (None if there are none) and the values of the constant ones."""

    model: Any
    varying: npt.NDArray[np.int64]
    constant: UInt8s

    def predict(self, X: Any) -> UInt8s:
        """Return rows of 0 and 1, a column per label."""
        rows = np.tile(self.constant, (X.shape[0], 1))
        if self.model is not None:
            found = self.model.predict(X)
            found = np.asarray(found.toarray() if hasattr(found, "toarray") else found)
            width = max(self.varying.size, 2)
            if found.shape != (X.shape[0], width) or not np.isin(found, (0, 1)).all():
                fix = "It must be a multi-label classifier, such as OneVsRestClassifier(...)."
                got = Described(f"a prediction of shape {found.shape}, dtype {found.dtype}")
                raise invalid("MultiLabelPATE", "teacher or student", "predict rows of 0 and 1", got=got, fix=fix)
            rows[:, self.varying] = found[:, : self.varying.size]
        return rows

    def scores(self, X: Any) -> Float64s:
        """Return the probability of each label; where the model has none, its prediction."""
        rows = np.tile(self.constant.astype(np.float64), (X.shape[0], 1))
        if self.model is None:
            return rows
        if not hasattr(self.model, "predict_proba"):
            return self.predict(X).astype(np.float64)
        found = self.model.predict_proba(X)
        # Some multi-label estimators return a matrix, others a list with Pr[0], Pr[1] for each label.
        matrix = np.stack([part[:, 1] for part in found], axis=1) if isinstance(found, list) else np.asarray(found)
        if np.isnan(matrix).any():
            got = Described("NaN among its probabilities")
            raise invalid("MultiLabelPATE", "teacher or student", "return probabilities", got=got)
        rows[:, self.varying] = matrix[:, : self.varying.size]
        return rows


def fit_labels(estimator: Any, X: Any, targets: Array) -> LabelModel:
    """Fit the estimator on the columns that vary."""
    constant = targets[0].astype(np.uint8)
    varying = np.flatnonzero((targets != targets[0]).any(axis=0))
    if not varying.size:
        return LabelModel(model=None, varying=varying, constant=constant)
    columns = targets[:, varying]
    if varying.size == 1:
        columns = np.hstack([columns, 1 - columns])
    return LabelModel(model=estimator.fit(X, columns.astype(np.int64)), varying=varying, constant=constant)


MANIFEST = "manifest.json"
MARK = "PRIVATE.txt"
MARK_TEXT = "Votes without noise, as private as the labels they were learned from. Do not copy, share or back up.\n"
FORMAT = "labeldp pate votes 1"
#: Permission bits of anybody but the owner.
OTHERS = 0o077


@dataclass(frozen=True, kw_only=True)
class VoteStore:
    """A private folder of one run. `split`: the number that decides which row goes to which teacher."""

    folder: Path
    split: int

    @classmethod
    def open(cls, owner: str, folder: str | os.PathLike[str], *, identity: str, split: int) -> VoteStore:
        """Make a new folder, or open that of an interrupted run on the same data, whose split then stands."""
        place = Path(folder)
        if not os.path.lexists(place):
            return cls._make(owner, place, identity, split)
        check_private(owner, place)
        manifest = read_manifest(owner, place)
        if manifest["identity"] != identity:
            fix = "Choose another folder, or delete this one."
            got = Described("one of other data, teachers or settings")
            raise invalid(owner, "checkpoint", "be a folder of this very run", got=got, fix=fix)
        return cls(folder=place, split=int(manifest["split"]))

    @classmethod
    def _make(cls, owner: str, place: Path, identity: str, split: int) -> VoteStore:
        if not place.parent.is_dir():
            raise invalid(owner, "checkpoint", "be in an existing folder", got=str(place), fix="Create it first.")
        place.mkdir(mode=0o700)
        write_private(place / MARK, MARK_TEXT.encode())
        text = json.dumps({"format": FORMAT, "identity": identity, "split": split})
        write_private(place / MANIFEST, text.encode())
        return cls(folder=place, split=split)

    def load(self, teacher: int) -> npt.NDArray[Any] | None:
        """Return a teacher's votes, or None if it has not voted yet."""
        path = self._path(teacher)
        if not path.exists():
            return None
        try:
            votes = _open_votes(path)
        except (ValueError, OSError, EOFError) as error:
            raise ReleaseError(f"PATE: {path.name} is not readable: {error}. Delete it and fit again.") from error
        return votes

    def save(self, teacher: int, votes: npt.NDArray[Any]) -> None:
        """Keep a teacher's votes, with their SHA-256 behind them."""
        buffer = io.BytesIO()
        np.save(buffer, votes, allow_pickle=False)
        data = buffer.getvalue()
        write_private(self._path(teacher), data + hashlib.sha256(data).digest())

    def discard(self) -> None:
        """Delete every file of the run, what a kill left half written too, and the folder, unless something else lies in it."""
        for path in [path for path in self.folder.iterdir() if is_partial(path.name)]:
            remove_leftover(path)
        for path in [*self.folder.glob("votes-*.npy"), self.folder / MANIFEST, self.folder / MARK]:
            path.unlink(missing_ok=True)
        if not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _path(self, teacher: int) -> Path:
        return self.folder / f"votes-{teacher:06d}.npy"


def _open_votes(path: Path) -> npt.NDArray[Any]:
    """Return the votes of a file that is as `VoteStore.save` wrote it."""
    if not path.is_file():
        raise ValueError("it is no file")
    data = path.read_bytes()
    body, seal = data[:-32], data[-32:]
    if hashlib.sha256(body).digest() != seal:
        raise ValueError("it was changed after it was written")
    handle = io.BytesIO(body)
    check_npy(handle, len(body))
    handle.seek(0)
    votes: npt.NDArray[Any] = np.load(handle, allow_pickle=False)
    return votes


def check_private(owner: str, place: Path) -> None:
    """Refuse what is not a folder, is a link, or can be read by others."""
    if place.is_symlink() or not place.is_dir():
        raise invalid(owner, "checkpoint", "be a folder", got=str(place))
    mode = place.stat().st_mode & 0o777
    if os.name == "posix" and mode & OTHERS:
        fix = f"Others may read it: chmod 700 {place.name}, or choose a new folder."
        raise invalid(owner, "checkpoint", "be the owner's alone", got=oct(mode), fix=fix, kind=PrivacyError)


def read_manifest(owner: str, place: Path) -> dict[str, Any]:
    """Return the manifest of a folder that is ours."""
    try:
        manifest = read_json(place / MANIFEST)
        ours = (
            isinstance(manifest, dict) and manifest.get("format") == FORMAT and {"identity", "split"} <= set(manifest)
        )
    except (OSError, ValueError):
        ours, manifest = False, {}
    if not ours:
        fix = "Choose a folder that does not exist yet."
        raise invalid(owner, "checkpoint", "be new or a folder of votes", got=str(place), fix=fix)
    return dict(manifest)


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only the owner reads, through a hidden one: it is whole or absent."""
    hidden = path.with_name(hidden_name(path.name))
    handle = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            lock(handle)
            file.write(data)
        hidden.replace(path)
    finally:
        hidden.unlink(missing_ok=True)


def digest_run(*values: Any) -> str:
    """Return a digest of arrays (dense or sparse) and of whatever else has a repr."""
    digest = hashlib.sha256()
    for value in values:
        if scipy.sparse.issparse(value):
            parts: list[Any] = [value.shape, value.data, value.indices, value.indptr]
        else:
            parts = [value]
        for part in parts:
            if isinstance(part, np.ndarray):
                digest.update(f"{part.dtype} {part.shape}:".encode())
                digest.update(np.ascontiguousarray(part).tobytes())
            else:
                digest.update(repr(part).encode() + b";")
    return digest.hexdigest()
