"""Models on disk: written at once or not at all, and loaded without running anything that the file brings.

>>> import tempfile, pathlib, numpy as np
>>> from labeldp.learn import SoftmaxRegression
>>> folder = tempfile.TemporaryDirectory()
>>> path = pathlib.Path(folder.name) / "model.skops"
>>> save_model(SoftmaxRegression().fit(np.eye(2), ["no", "yes"]), path)
>>> load_model(path).predict(np.eye(2)).tolist()
['no', 'yes']
>>> folder.cleanup()

*What a file holds.* skops stores arrays and plain values, and names the types to rebuild. Of a learner that protects
labels the file holds what predicts and what was promised. It does not hold the release, the prior, the ledger or the mechanism, which
belong to the owner of the labels, nor, of any part of any model, places (checkpoint, memory, cache), who was told of progress, or
seeds (`labeldp.release.templates.forget_owner`): they are the defaults in the file, and once more when it is loaded. Estimators that were given as templates are stored untrained, since the
caller may have fitted them on raw labels before; one that stays trained is refused (`labeldp.release.templates`). Of PATE only
the student stays, since teachers learned raw labels. The promise travels as JSON and is read by `Guarantee.from_json`. Nothing
here is a signature.

*Safety.* A file that asks for a type which is neither one of skops' own (scikit-learn, NumPy, SciPy) nor in `TRUSTED` is
refused before anything is built. What its members and arrays declare is compared with its size before anything is allocated
(`labeldp.untrusted`), arrays that compiled code follows are checked before they are handed out, and a model that answered a
few plain rows before it was saved must answer them again (`labeldp.learn.soundness`). Whatever is wrong, it is a
`ReleaseError`.

*The seal.* Since version 3 a file ends with the SHA-256 of everything before it, so a file of which any byte was changed does
not load. It is no signature: whoever edits a file on purpose can seal it again. Files of versions 1 and 2 have none; they
load as they did, and damage to a number inside of an array was found by the archive's own 32-bit checksums alone.

*Names.* A file calls our classes by their public names (`labeldp.learn.SoftmaxRegression`), wherever their code lies.
skops itself writes the module in which a class is defined; `save_model` replaces it. So a class may move to another
module, and old files load as long as its public name stays. Files of labeldp 0.1 before this rule name the modules of
their time; `OLD_NAMES` says what these are called today.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import io
import json
import os
import zipfile
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from labeldp.accounting import note_entry, recall_entry
from labeldp.errors import Described, LabelDPError, MissingExtraError, PrivacyError, ReleaseError, invalid, nearest
from labeldp.guarantee import Guarantee
from labeldp.learn.boosters import pack_boosters
from labeldp.learn.classifier import LabelPrivateClassifier
from labeldp.learn.number_stages import NumberStage
from labeldp.learn.pate import PATE, MultiLabelPATE
from labeldp.learn.regressor import LabelPrivateRegressor
from labeldp.learn.search import PrivateSearchCV
from labeldp.learn.soundness import check_answers, check_model, check_schema, find_file_reader, list_answers
from labeldp.learn.stages import Stage
from labeldp.release.saving import check_new, write_new
from labeldp.release.templates import copy_template, forget_owner
from labeldp.untrusted import check_archive, check_seal, parse_json, seal_archive

FORMAT = "labeldp model"
#: Version 3 is sealed. Version 2 names public paths. Version 1 (labeldp 0.1, first files) is read through `OLD_NAMES`.
VERSION = 3
SEALED_SINCE = 3
READABLE = (1, 2, 3)
#: Brackets inside brackets of a schema: skops writes about four for each object that holds another.
SCHEMA_DEPTH = 200
#: Bytes of a schema: a forest of 10,000 trees has some 40 MB.
MOST_SCHEMA = 128 * 2**20
SCHEMA = "schema.json"

#: Our types that a model file may name, by their public names. Each is a plain container of arrays and settings.
PUBLIC = frozenset(
    {
        "labeldp.features.Embeddings",
        "labeldp.features.PatchFeatures",
        "labeldp.features.TextFeatures",
        "labeldp.learn.BoosterClassifier",
        "labeldp.learn.LPNormalSGD",
        "labeldp.learn.LPRRSGD",
        "labeldp.learn.LabelPrivateClassifier",
        "labeldp.learn.LabelPrivateRegressor",
        "labeldp.learn.MultiLabelPATE",
        "labeldp.learn.OutputPerturbation",
        "labeldp.learn.PATE",
        "labeldp.learn.PrivateGLM",
        "labeldp.learn.SimplexERM",
        "labeldp.learn.SoftmaxRegression",
        "labeldp.learn.SufficientStatistics",
        "labeldp.learn.TableEncoder",
        "labeldp.learn.pate.LabelModel",
        "labeldp.learn.ratings.LabelPrivateRatings",
        "labeldp.learn.ratings.MatrixFactorisation",
        "labeldp.nn.DPSGDClassifier",
        "labeldp.nn.NetClassifier",
        "labeldp.release.Sensitivity",
    }
)

#: Types beyond skops' own list that a model file may name.
TRUSTED = PUBLIC | {
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    # What a network of scikit-learn was trained by: rates and moments, which prediction does not read.
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
    "sklearn.tree._tree.Tree",
}

#: What files of version 1 call our types, and what these are called since.
OLD_NAMES = {
    "labeldp.learn._classifier.LabelPrivateClassifier": "labeldp.learn.LabelPrivateClassifier",
    "labeldp.learn._softmax.SoftmaxRegression": "labeldp.learn.SoftmaxRegression",
    "labeldp.learn._tables.TableEncoder": "labeldp.learn.TableEncoder",
    "labeldp.learn.pate._columns.LabelModel": "labeldp.learn.pate.LabelModel",
    "labeldp.learn.pate._multiclass.PATE": "labeldp.learn.PATE",
    "labeldp.learn.pate._multilabel.MultiLabelPATE": "labeldp.learn.MultiLabelPATE",
    "labeldp.learn.ratings._factorisation.MatrixFactorisation": "labeldp.learn.ratings.MatrixFactorisation",
    "labeldp.nn._classifier.NetClassifier": "labeldp.nn.NetClassifier",
}

#: Settings of a learner that stay with the owner of the labels, beside those that any estimator may have
#: (`labeldp.release.templates.forget_owner`); a loaded learner has None for them.
OWNERS_SETTINGS = ("ledger", "random_state", "checkpoint", "prior", "mechanism")
#: Settings that hold an estimator to be trained: stored unfitted.
TEMPLATES = ("estimator", "network", "learner")
#: What a learner keeps of the release beside what predicts; the promise and the stages travel as JSON.
OWNERS_RESULTS = (
    "release_",
    "guarantee_",
    "stages_",
    "facts_",
    "plan_",
    "answered_",
    "answers_",
    "ledger_entry_",
    "by_user_",
    "by_item_",
)


#: What the promise is written by. Whoever saves a model adds facts beside it, and none of these.
PROMISE = frozenset(
    {
        "guarantee",
        "classes",
        "seeded",
        "mechanism",
        "label_set",
        "created",
        "n_examples",
        "n_answered",
        "stages",
        "ledger_entry",
        "ledger_hash",
    }
)


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
    """Write a fitted estimator to a new file.

    Parameters
    ----------
    model
        Any learner of labeldp, any estimator of scikit-learn that skops can store, the classifiers of LightGBM, XGBoost and
        CatBoost (`labeldp.learn.boosters`), or a pipeline of those. An estimator with parts of other types (a function, a module of the user's own) is refused, since it would not load. Of a
        PrivateSearchCV its best estimator is kept, with the guarantee of the whole search.
    path
        A file that does not exist yet, in a folder that does. It appears whole or not at all.
    facts
        Plain JSON values to keep beside the model; `facts_` of the loaded model, together with the promise. The names that the
        promise is written by (`PROMISE`) are refused: it is that of the learner, and a model without one gets none.
    """
    import skops.io

    target = check_new(path, owner="save_model")
    if isinstance(model, PrivateSearchCV):
        check_is_fitted(model, "best_estimator_")
        model = model.best_estimator_  # with the guarantee of the whole search
    taken = sorted(PROMISE & set(facts or {}))
    if taken:
        fix = "Save the learner itself, whose promise is written by what it did; other names are free."
        raise invalid("save_model", "facts", "leave the promise out", got=taken[0], fix=fix, kind=PrivacyError)
    whole = {**_describe_promise(model), **(facts or {})}
    light = forget_owner(pack_boosters(_strip(model)))
    reader = find_file_reader(light)
    if reader is not None:
        fix = 'A model file must not open other files. Read them yourself, and use input="content".'
        raise invalid("save_model", "model", "be given contents, not names of files", got=reader, fix=fix)
    described = {"format": FORMAT, "version": VERSION, "facts": whole, "answers": list_answers(light)}
    header = json.dumps(described, allow_nan=False)
    try:
        data = _rename_types(skops.io.dumps({"header": header, "model": light}), _public_name)
        strange = sorted(set(skops.io.get_untrusted_types(data=data)) - TRUSTED)
    except (TypeError, ValueError, AttributeError, RuntimeError) as error:  # torch raises the last for a module
        _refuse_code(model)
        fix = f"skops says: {error}"
        raise invalid("save_model", "model", "be storable", got=type(model).__name__, fix=fix) from error
    if strange:
        _refuse_code(model)
        fix = "Use scikit-learn's or labeldp's estimators, LGBMClassifier, XGBClassifier or CatBoostClassifier."
        raise invalid("save_model", "model", "be made of known types", got=strange[0], fix=fix)
    write_new(target, seal_archive(data), owner="save_model")


#: Parameters that may be code of the user's, and what she does instead.
CODE = {
    "encoder": "Make the array of embeddings outside the model, store a model of that array, and bring the encoder along (docs/embeddings.md).",
    "module": "labeldp.nn.save_network keeps the arrays of a NetClassifier, and load_network(path, module=...) wants the module from you.",
}


def _refuse_code(model: Any) -> None:
    """Refuse a model that is not storable because it holds code: an encoder, or a module of the user's own."""
    for name, value in model.get_params().items() if hasattr(model, "get_params") else ():
        advice = CODE.get(name.rpartition("__")[2])
        if advice is not None and callable(value):
            got = Described(f"{type(model).__name__} with {name}, a {type(value).__name__}")
            fix = f"That is code, and a file of labeldp holds none. {advice}"
            raise invalid("save_model", "model", "hold no code of yours", got=got, fix=fix) from None


def load_model(path: str | os.PathLike[str]) -> Any:
    """Return a saved estimator; a file that is damaged, not ours, or names other types is refused.

    The loaded model predicts as the saved one did. A learner that protects labels has `guarantee_`, and where the saved
    one had them `release_` (a summary without labels) and `stages_`; every model has `facts_`, the promise and what
    the caller of `save_model` added, as JSON values.

    >>> load_model("no/such.skops")
    Traceback (most recent call last):
    ...
    labeldp.errors.LabelDPError: load_model: `path` must be an existing file, got 'no/such.skops'. There is none.
    """
    import skops.io
    from skops.io.exceptions import UntrustedTypesFoundException

    place = Path(path)
    if not place.is_file():
        if place.is_dir():
            fix = "A model is one file. Is it a release? `load_release` reads it, and `labeldp train` learns from it."
            raise invalid("load_model", "path", "be a file", got=Described(f"the directory {place}"), fix=fix)
        around = [str(place.parent / p.name) for p in place.parent.glob("*.skops")] if place.parent.is_dir() else []
        raise invalid("load_model", "path", "be an existing file", got=str(place), fix=nearest(str(place), around))
    try:
        written = place.read_bytes()
        sealed = check_seal(written)
        check_archive(written)
        data = _rename_types(written, lambda module, name: OLD_NAMES.get(f"{module}.{name}"))
        _check_types(place, data)
        _check_schema(data)
        stored = skops.io.loads(data, trusted=sorted(TRUSTED))
        header = _read_header(place, stored["header"], sealed=sealed)
        check_model(stored["model"])
        # Files of labeldp 0.1 before answers were written down say nothing of any.
        # The file says what it likes, and the model is asked: first nothing of it may name a folder.
        found = _drop_owners(forget_owner(stored["model"]))
        return check_answers(_restore(found, header["facts"]), header.get("answers", ()))
    except ReleaseError:
        raise
    except MissingExtraError:  # the reader's installation, not the file
        raise
    except UntrustedTypesFoundException as error:
        raise _refuse_types(place, [str(error)]) from error
    # Whatever a damaged file makes skops, zipfile, zlib, tokenize or a type's own code say, it is one thing to the reader.
    except Exception as error:
        raise ReleaseError(
            f"load_model: {place} is not a readable model: {error}. Ask its owner for it again."
        ) from error


# ------------------------------------------------------------------------------------------------ names of types


def _rename_types(data: bytes, rename: Callable[[str, str], str | None]) -> bytes:
    """Return a skops file in which types are called by other names.

    `rename` takes the module and the name of a type and returns its new full name, or None to leave it. Types are named in
    the schema alone; everything else is copied as it is.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        schema = _read_schema(archive)
        if not _rename_nodes(schema, rename):
            return data
        copied = io.BytesIO()
        with zipfile.ZipFile(copied, "w", compression=zipfile.ZIP_STORED) as written:
            for entry in archive.infolist():
                if entry.filename != SCHEMA:
                    written.writestr(entry, archive.read(entry))
            written.writestr(SCHEMA, json.dumps(schema))
    return copied.getvalue()


def _read_schema(archive: zipfile.ZipFile) -> Any:
    declared = archive.getinfo(SCHEMA).file_size
    if declared > MOST_SCHEMA:  # before it is unpacked
        raise ValueError(f"its schema has {declared:,} bytes, more than {MOST_SCHEMA:,}")
    return parse_json(archive.read(SCHEMA), most_bytes=MOST_SCHEMA, most_depth=SCHEMA_DEPTH)


def _check_schema(data: bytes) -> None:
    """Refuse parts that must not even be built."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        check_schema(
            _read_schema(archive),
            lambda name: np.load(io.BytesIO(archive.read(name)), allow_pickle=False),
        )


def _rename_nodes(node: Any, rename: Callable[[str, str], str | None]) -> bool:
    """Rename the types of a schema in place, and return whether there were any to rename."""
    if isinstance(node, list):
        return any([_rename_nodes(part, rename) for part in node])  # noqa: C419 - every part, not up to the first
    if not isinstance(node, dict):
        return False
    changed = any([_rename_nodes(part, rename) for part in node.values()])  # noqa: C419
    module, name = node.get("__module__"), node.get("__class__")
    if isinstance(module, str) and isinstance(name, str):
        new = rename(module, name)
        if new is not None:
            node["__module__"], _, node["__class__"] = new.rpartition(".")
            return True
    return changed


def _public_name(module: str, name: str) -> str | None:
    """Return the public name of the class `name` that is defined in `module`, or None if it has none."""
    if not module.startswith("labeldp."):
        return None
    for public in PUBLIC:
        room, _, last = public.rpartition(".")
        if last == name and getattr(import_module(room), name).__module__ == module:
            return public
    return None


def _check_types(place: Path, data: bytes) -> None:
    """Refuse a file that names types which could do anything, before anything of it is built."""
    import skops.io

    strange = sorted(set(skops.io.get_untrusted_types(data=data)) - TRUSTED)
    if strange:
        raise _refuse_types(place, strange)


def _refuse_types(place: Path, types: list[str]) -> LabelDPError:
    """Return the refusal of a file that names types which could do anything."""
    fix = "Nothing of it was run. Do not use this file."
    return invalid("load_model", place.name, "be made of known types", got=types[0], fix=fix, kind=ReleaseError)


# ------------------------------------------------------------------------------------------------ what is stored


def learner_of(model: Any) -> Any:
    """Return what learned from labels: the model itself, or the last step of a pipeline."""
    return model[-1] if isinstance(model, Pipeline) else model


def _protects_labels(model: Any) -> bool:
    """Whether a fitted model is one of our learners with a promise of its own."""
    return hasattr(model, "guarantee_") and type(model).__module__.startswith("labeldp.")


def _strip(model: Any) -> Any:
    """Return the model without what only the owner of its labels needs, and without what travels as JSON."""
    if isinstance(model, Pipeline) and _protects_labels(model[-1]):
        return Pipeline([*model.steps[:-1], (model.steps[-1][0], _strip(model[-1]))])
    if not _protects_labels(model):
        return model
    light = copy.copy(model)
    for name in OWNERS_RESULTS:
        light.__dict__.pop(name, None)
    settings = light.get_params(deep=False)
    _drop_owners(light)
    if settings.get("mechanism") is not None and settings.get("epsilon", 0.0) is None:
        light.epsilon = model.guarantee_.epsilon()  # it was the mechanism's, which stays behind
    for name in TEMPLATES:
        if settings.get(name) is not None:
            setattr(light, name, copy_template("save_model", name, settings[name]))
    for name in ("stage_params", "final_params"):
        if settings.get(name) is not None:
            setattr(light, name, copy_template("save_model", name, settings[name], safe=False))
    # A range is a way to write a list of classes that files of models do not know.
    for name in ("classes", "values"):
        if isinstance(settings.get(name), range):
            setattr(light, name, tuple(settings[name]))
    return light


def _drop_owners(model: Any) -> Any:
    """Take off a learner, in place, the settings that are those of the owner of its labels; return the model."""
    learner = learner_of(model)
    if type(learner).__module__.startswith("labeldp.") and hasattr(learner, "label_set"):
        pate = ("teacher", "student") if isinstance(learner, (PATE, MultiLabelPATE)) else ()
        for name in (*OWNERS_SETTINGS, *pate):
            if name in vars(learner):
                setattr(learner, name, None)
    return model


def _describe_promise(model: Any) -> dict[str, Any]:
    """Return what was promised about the labels that the model learned from, as JSON values."""
    learner = learner_of(model)
    if not _protects_labels(learner):
        return {}
    release = getattr(learner, "release_", None)
    facts: dict[str, Any] = {
        "guarantee": learner.guarantee_.to_json(),
        "classes": np.asarray(_classes_of(learner)).tolist(),
        "seeded": learner.seeded_ if release is None else release.seeded,
        "mechanism": _describe_mechanism(learner) if release is None else release.mechanism,
        "label_set": learner.label_set,
    }
    if hasattr(learner, "ledger_entry_"):
        facts |= note_entry(learner.ledger_entry_)
    if release is not None:
        facts |= {"classes": list(release.classes), "label_set": release.label_set, "created": release.created}
        facts |= {**note_entry(release.ledger_entry), "n_examples": len(release)}
    if hasattr(learner, "n_answered_"):  # how many queries were answered is part of what PATE released
        facts["n_answered"] = learner.n_answered_
    if _stage_type(learner) is not None:
        facts["stages"] = [_write_stage(dataclasses.asdict(stage)) for stage in learner.stages_]
    return facts


def _classes_of(learner: Any) -> Any:
    if isinstance(learner, LabelPrivateRegressor):
        return learner.bounds_  # numbers have no classes; the levels of its release, where there is one, come later
    return getattr(learner, "classes_", getattr(learner, "values_", ()))


def _describe_mechanism(learner: Any) -> str:
    """Return in words what released the labels of a learner that keeps no release."""
    # By what was promised: settings may have been changed since, for a fit to come.
    return f"{type(learner).__name__}, {learner.guarantee_.cost}"


def _stage_type(learner: Any) -> type | None:
    """Return the class of a learner's reports of its stages; None if it has no stages."""
    if isinstance(learner, LabelPrivateClassifier):
        return Stage
    if isinstance(learner, LabelPrivateRegressor):
        return NumberStage
    if type(learner).__name__ == "LabelPrivateRatings":
        from labeldp.learn.ratings import RatingStage  # loads compiled loops: only where they are used anyway

        return RatingStage
    return None


def _write_stage(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return JSON values; a number that is not one (an accuracy that is not defined) becomes null."""
    return {k: None if isinstance(v, float) and not np.isfinite(v) else v for k, v in record.items()}


# ------------------------------------------------------------------------------------------------ what is restored


def _read_header(place: Path, text: str, *, sealed: bool) -> dict[str, Any]:
    """Return the header of a file that is ours, of a version that we know, and sealed if that version seals."""
    header: dict[str, Any] = parse_json(text)
    if header.get("format") != FORMAT or header.get("version") not in READABLE:
        got = Described(f"{header.get('format')!r}, version {header.get('version')!r}")
        fix = "Upgrade labeldp to read newer models."
        raise invalid(
            "load_model", place.name, f"be a {FORMAT}, version {VERSION}", got=got, fix=fix, kind=ReleaseError
        )
    if header["version"] >= SEALED_SINCE and not sealed:
        raise ReleaseError(
            f"load_model: {place} is not a readable model: its seal is gone. Ask its owner for it again."
        )
    return header


def _restore(model: Any, facts: dict[str, Any]) -> Any:
    """Give a loaded model its promise back, and settings that were added after it was saved their defaults."""
    learner = learner_of(model)
    if _public_name(type(learner).__module__, type(learner).__name__) is not None:
        for name, parameter in inspect.signature(type(learner)).parameters.items():
            if not hasattr(learner, name):
                setattr(learner, name, parameter.default)
    if hasattr(learner, "label_set") and "guarantee" in facts:
        promise = Guarantee.from_json(facts["guarantee"])
        learner.guarantee_ = promise
        if "n_examples" in facts:
            names = ("mechanism", "seeded", "label_set", "created", "n_examples")
            kept = {name: facts[name] for name in names}
            learner.release_ = RememberedRelease(
                classes=tuple(facts["classes"]), guarantee=promise, ledger_entry=recall_entry(facts), **kept
            )
        elif "ledger_entry" in facts:
            learner.ledger_entry_ = recall_entry(facts)
        report = _stage_type(learner)
        if report is not None:
            learner.stages_ = tuple(_read_stage(report, record) for record in facts["stages"])
    model.facts_ = facts
    return model


def _read_stage(kind: type, record: Mapping[str, Any]) -> Any:
    """Return a stage from JSON, where an accuracy that is not defined is null."""
    return kind(**{name: float("nan") if value is None else value for name, value in record.items()})
