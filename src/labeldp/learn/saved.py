"""Models on disk: written at once or not at all, and loaded without running anything that the file brings.

>>> import tempfile, pathlib, numpy as np
>>> from labeldp.learn import SoftmaxRegression
>>> folder = tempfile.TemporaryDirectory()
>>> path = pathlib.Path(folder.name) / "model.skops"
>>> save_model(SoftmaxRegression().fit(np.eye(2), ["no", "yes"]), path)
>>> load_model(path).predict(np.eye(2)).tolist()
['no', 'yes']
>>> folder.cleanup()

Design notes. skops stores arrays and plain values and names the types to rebuild; a file that asks for a type which is
neither one of skops' own (scikit-learn, NumPy, SciPy) nor in `TRUSTED` is refused before anything is built. A
`LabelPrivateClassifier` is stored without its release, its prior and its ledger: a model file carries what predicts
and what was promised. A PATE learner, alone or as the last step of a pipeline, is stored as its student and its promise:
teachers learned raw labels and are never kept, and the templates of teacher and student go too, since a caller may have
fitted them before. The promise travels as JSON and is read by `Guarantee.from_json`. Nothing here is a signature.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from labeldp.errors import Described, LabelDPError, ReleaseError, invalid, nearest
from labeldp.guarantee import Guarantee
from labeldp.learn.classifier import LabelPrivateClassifier
from labeldp.learn.pate.multiclass import TeacherEnsemble
from labeldp.learn.stages import Stage
from labeldp.release.files import check_new, write_new

FORMAT = "labeldp model"
VERSION = 1

#: Types beyond skops' own list that a model file may name. Each is a plain container of arrays and settings.
TRUSTED = frozenset(
    {
        "labeldp.learn.classifier.LabelPrivateClassifier",
        "labeldp.learn.softmax.SoftmaxRegression",
        "labeldp.learn.tables.TableEncoder",
        "labeldp.learn.pate.teachers.LabelModel",
        "labeldp.learn.pate.multiclass.PATE",
        "labeldp.learn.pate.multilabel.MultiLabelPATE",
        "labeldp.learn.ratings.factorisation.MatrixFactorisation",
        "labeldp.nn.classifier.NetClassifier",
        "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
        "sklearn.tree._tree.Tree",
    }
)

#: Settings of a PATE learner that stay with its owner.
OWNERS_OF_PATE = ("teacher", "student", "ledger", "random_state", "checkpoint")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RememberedRelease:
    """What a saved model remembers of the release it learned from: everything but the labels and their channel."""

    classes: tuple[Any, ...]
    guarantee: Guarantee
    mechanism: str
    seeded: bool
    label_set: str
    created: str
    ledger_entry: int | None
    n_examples: int

    def __len__(self) -> int:
        return self.n_examples


def save_model(model: Any, path: str | os.PathLike[str], *, facts: dict[str, Any] | None = None) -> None:
    """Write a fitted estimator to a new file; `facts` are plain JSON values kept beside it (`facts_` after loading)."""
    import skops.io

    target = check_new(path, owner="save_model")
    whole = {**promised(model), **(facts or {})}
    header = json.dumps({"format": FORMAT, "version": VERSION, "facts": whole}, allow_nan=False)
    try:
        data = skops.io.dumps({"header": header, "model": bare(model)})
        strange = sorted(set(skops.io.get_untrusted_types(data=data)) - TRUSTED)
    except (TypeError, ValueError, AttributeError, RuntimeError) as error:  # torch raises the last for a module
        fix = f"skops says: {error}"
        raise invalid("save_model", "model", "be storable", got=type(model).__name__, fix=fix) from error
    if strange:
        fix = "Use scikit-learn's or labeldp's estimators."
        raise invalid("save_model", "model", "be made of known types", got=strange[0], fix=fix)
    write_new(target, data, owner="save_model")


def load_model(path: str | os.PathLike[str]) -> Any:
    """Return a saved estimator; a file that is damaged, not ours, or names other types is refused.

    >>> load_model("no/such.skops")
    Traceback (most recent call last):
    ...
    labeldp.errors.LabelDPError: load_model: `path` must be an existing file, got 'no/such.skops'. There is none.
    """
    import skops.io
    from skops.io.exceptions import UntrustedTypesFoundException

    place = Path(path)
    if not place.is_file():
        around = [str(place.parent / p.name) for p in place.parent.glob("*.skops")] if place.parent.is_dir() else []
        raise invalid("load_model", "path", "be an existing file", got=str(place), fix=nearest(str(place), around))
    try:
        data = place.read_bytes()
        strange = sorted(set(skops.io.get_untrusted_types(data=data)) - TRUSTED)
        if strange:
            raise untrusted(place, strange)
        stored = skops.io.loads(data, trusted=sorted(TRUSTED))
        return restored(stored["model"], checked_header(place, stored["header"]))
    except LabelDPError:
        raise
    except UntrustedTypesFoundException as error:
        raise untrusted(place, [str(error)]) from error
    # Whatever a damaged file makes skops, zipfile, json or a type's own checks say, it is one thing to the reader.
    except (
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        IndexError,
        EOFError,
        OSError,
        zipfile.BadZipFile,
    ) as error:
        raise ReleaseError(
            f"load_model: {place} is not a readable model: {error}. Ask its owner for it again."
        ) from error


def bare(model: Any) -> Any:
    """Return the model without what only its owner needs: release, prior, ledger, seed, and what travels as JSON."""
    if isinstance(model, Pipeline) and isinstance(model[-1], TeacherEnsemble):
        return Pipeline([*model.steps[:-1], (model.steps[-1][0], bare(model[-1]))])
    if isinstance(model, TeacherEnsemble):
        return without(model, OWNERS_OF_PATE)
    if isinstance(model, LabelPrivateClassifier):
        return without(model, ("prior", "ledger", "random_state", "checkpoint"))
    return model


def without(model: Any, settings: tuple[str, ...]) -> Any:
    """Return a copy in which these settings are None and only what predicts is left of what was learned."""
    light = copy.copy(model)
    for name in ("release_", "guarantee_", "stages_", "facts_", "plan_", "answered_", "answers_"):
        light.__dict__.pop(name, None)
    for name in settings:
        setattr(light, name, None)
    # A range is a way to write a list of classes that files of models do not know.
    if isinstance(getattr(light, "classes", None), range):
        light.classes = tuple(light.classes)
    return light


def promised(model: Any) -> dict[str, Any]:
    """Return what was promised about the labels that the model learned from, as JSON."""
    if isinstance(model, Pipeline):
        return promised(model[-1])
    if isinstance(model, TeacherEnsemble):
        return promised_by_teachers(model)
    if not isinstance(model, LabelPrivateClassifier):
        return {}
    release = model.release_
    return {
        "guarantee": model.guarantee_.to_json(),
        "stages": [plain_numbers(dataclasses.asdict(stage)) for stage in model.stages_],
        "classes": list(release.classes),
        "seeded": release.seeded,
        "mechanism": release.mechanism,
        "label_set": release.label_set,
        "created": release.created,
        "ledger_entry": release.ledger_entry,
        "n_examples": len(release),
    }


def promised_by_teachers(model: Any) -> dict[str, Any]:
    """Return the promise of a PATE learner as JSON; how many queries were answered is part of what it released."""
    return {
        "guarantee": model.guarantee_.to_json(),
        "classes": model.classes_.tolist(),
        "seeded": model.seeded_,
        "mechanism": f"{type(model).__name__}({model.aggregation}, {model.n_teachers} teachers)",
        "label_set": model.label_set,
        "ledger_entry": model.ledger_entry_,
        "n_answered": model.n_answered_,
    }


def plain_numbers(record: dict[str, Any]) -> dict[str, Any]:
    """Return JSON values; a number that is not one (an accuracy that is not defined) becomes null."""
    return {k: None if isinstance(v, float) and not np.isfinite(v) else v for k, v in record.items()}


def restored(model: Any, facts: dict[str, Any]) -> Any:
    """Give a loaded model its promise back."""
    last = model[-1] if isinstance(model, Pipeline) else model
    if isinstance(last, TeacherEnsemble):
        last.guarantee_ = Guarantee.from_json(facts["guarantee"])
    if isinstance(model, LabelPrivateClassifier):
        promise = Guarantee.from_json(facts["guarantee"])
        names = ("mechanism", "seeded", "label_set", "created", "ledger_entry", "n_examples")
        kept = {name: facts[name] for name in names}
        learned = {
            "guarantee_": promise,
            "release_": RememberedRelease(classes=tuple(facts["classes"]), guarantee=promise, **kept),
            "stages_": tuple(read_stage(record) for record in facts["stages"]),
        }
        model.__dict__.update(learned)
    model.facts_ = facts
    return model


def read_stage(record: dict[str, Any]) -> Stage:
    """Return a stage from JSON, where an accuracy that is not defined is null."""
    values: dict[str, Any] = {name: float("nan") if value is None else value for name, value in record.items()}
    return Stage(**values)


def checked_header(place: Path, text: str) -> dict[str, Any]:
    """Return the facts of a file that is ours and of a version that we know."""
    header = json.loads(text)
    if header.get("format") != FORMAT or header.get("version") != VERSION:
        got = Described(f"{header.get('format')!r}, version {header.get('version')!r}")
        fix = "Upgrade labeldp to read newer models."
        raise invalid(
            "load_model", place.name, f"be a {FORMAT}, version {VERSION}", got=got, fix=fix, kind=ReleaseError
        )
    facts: dict[str, Any] = header["facts"]
    return facts


def untrusted(place: Path, types: list[str]) -> LabelDPError:
    """Return the refusal of a file that names types which could do anything."""
    fix = "Nothing of it was run. Do not use this file."
    return invalid("load_model", place.name, "be made of known types", got=types[0], fix=fix, kind=ReleaseError)
