"""A guarantee as JSON of a published format: every kind of it validates and comes back, and `labeldp inspect` prints it."""

from __future__ import annotations

import copy
import json
import math
from fractions import Fraction
from typing import Any

import jsonschema
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from typer.testing import CliRunner

import labeldp
from labeldp.cli import app
from labeldp.cli.screen import to_json_types
from labeldp.errors import LabelDPError
from labeldp.guarantee import SEEDED, Guarantee, Trust, Unit
from labeldp.learn import LabelPrivateClassifier
from labeldp.learn.ratings import MatrixFactorisation
from labeldp.learn.saved import load_model, save_model
from labeldp.loss import Lump
from labeldp.loss.compose import READERS
from labeldp.report.words import cost, guarantee_schema, promise_document

SCHEMA = guarantee_schema()
CHECK = jsonschema.Draft202012Validator(SCHEMA)
#: What files carry: the part of the schema that release.json and a model's header are of.
CHECK_EXACT = jsonschema.Draft202012Validator({**SCHEMA["$defs"]["exact"], "$defs": SCHEMA["$defs"]})

PURE = Guarantee.pure(1.0)
PROMISES = {
    "pure": PURE,
    "nothing": Guarantee.pure(math.inf),
    "bounded range": Guarantee.bounded_range(0.5, unit=Unit.RECORD_REPLACE),
    "zcdp": Guarantee.zcdp(0.1, slack=1e-9, trust=Trust.CURATOR),
    "rdp": Guarantee.rdp([2.0, 4.0], [0.1, math.inf], unit=Unit.RECORD_ADD_REMOVE, trust=Trust.CURATOR),
    "gaussian": Guarantee.gaussian(sigma=2.0, sensitivity=1.0).assuming("rows are clipped to norm 1"),
    "discrete gaussian": Guarantee.discrete_gaussian(variance=20.0, sensitivity=2.0, trust=Trust.CURATOR),
    "profile": Guarantee.profile([0.0, 1.0], [0.5, 0.1], trust=Trust.PEERS | Trust.CURATOR),
    "then": Guarantee.zcdp(0.1).named("histogram").then(PURE.named("response")).then(Guarantee.rdp([2.0], [0.1])),
    "times": Guarantee.bounded_range(0.1).times(40),
    "beside": Guarantee.zcdp(0.1).beside(PURE),
    "lump": Guarantee(loss=Lump(worst=Fraction(3, 2), rho=Fraction(1, 7))),
    "persons": Guarantee.zcdp(0.01).named("counts").then(Guarantee.pure(0.25).named("labels")).for_persons(3),
    "persons asked once": Guarantee.pure(1.0, unit=Unit.PERSON),
    "seeded": PURE.assuming(SEEDED),
}


def as_json(promise: Guarantee) -> Any:
    """The document as a program reads it."""
    return json.loads(json.dumps(to_json_types(promise_document(promise)), allow_nan=False))


def kinds(node: Any) -> set[str]:
    """Every kind of loss that occurs in a document."""
    if isinstance(node, list):
        return set().union(*map(kinds, node))
    if not isinstance(node, dict):
        return set()
    return (
        {node["kind"]} & set(READERS) | set().union(*map(kinds, node.values()))
        if "kind" in node
        else kinds([*node.values()])
    )


def test_the_schema_is_one():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$id"] == "urn:labeldp:schema:guarantee:1"


@pytest.mark.parametrize("promise", PROMISES.values(), ids=PROMISES)
def test_every_guarantee_validates_and_comes_back(promise: Guarantee):
    document = as_json(promise)
    CHECK.validate(document)
    back = Guarantee.from_json(document["exact"])
    assert back == promise
    assert (back.label_loss, back.parts) == (promise.label_loss, promise.parts)
    # The summary says no more than the promise from which it was made.
    epsilon, delta = cost(back)
    assert document["epsilon"] == ("inf" if math.isinf(epsilon) else epsilon)
    assert (document["delta"], document["unit"], document["seeded"]) == (delta, promise.unit.value, promise.seeded)
    assert document["assumptions"] == list(promise.assumptions)
    assert document["trusted"] == [str(member.name).lower() for member in promise.trust.members]
    assert ("label_epsilon" in document) == (promise.unit is Unit.PERSON)


def test_every_kind_of_loss_and_every_unit_is_among_them():
    documents = [as_json(promise) for promise in PROMISES.values()]
    assert kinds(documents) == set(READERS)
    assert {document["unit"] for document in documents} == {unit.value for unit in Unit}


def forged() -> dict[str, Any]:
    """Documents that claim what no guarantee says, each a small change of a true one."""

    def change(name: str, *path: Any, value: Any = None) -> Any:
        document = as_json(PROMISES[name])
        spot = document
        for step in path[:-1]:
            spot = spot[step]
        if value is None:
            del spot[path[-1]]
        else:
            spot[path[-1]] = value
        return document

    return {
        "no unit": change("pure", "exact", "unit"),
        "no trust": change("pure", "exact", "trust"),
        "no loss": change("pure", "exact", "loss"),
        "no epsilon": change("pure", "exact", "loss", "epsilon"),
        "negative": change("pure", "exact", "loss", "epsilon", value=-1.0),
        "words": change("pure", "exact", "loss", "epsilon", value="small"),
        "unknown kind": change("pure", "exact", "loss", "kind", value="perfect"),
        "unknown unit": change("pure", "exact", "unit", value="nobody"),
        "unknown friend": change("zcdp", "exact", "trust", value=["everyone"]),
        "slack above one": change("zcdp", "exact", "loss", "slack", value=1.5),
        "order of one": change("rdp", "exact", "loss", "orders", value=[1.0, 2.0]),
        "no times": change("times", "exact", "loss", "of", 0, "count", value=-3),
        "one more field": change("pure", "exact", "certified", value=True),
        "label loss of a label": change("pure", "exact", "label_loss", value={"kind": "pure", "epsilon": 0.1}),
        "false fraction": change("lump", "exact", "loss", "rho", value="1/0"),
    }


FORGED = forged()


@pytest.mark.parametrize("document", FORGED.values(), ids=FORGED)
def test_what_is_no_guarantee_is_refused_by_schema_and_by_reader(document: Any):
    assert not CHECK.is_valid(document)
    with pytest.raises(LabelDPError):
        Guarantee.from_json(document["exact"])


@pytest.mark.parametrize("field", sorted(SCHEMA["required"]))
def test_no_field_may_be_missing(field: str):
    document = as_json(PURE)
    del document[field]
    assert not CHECK.is_valid(document)


def test_persons_say_both_numbers():
    document = as_json(PROMISES["persons asked once"])
    del document["label_epsilon"]
    assert not CHECK.is_valid(document)
    assert not CHECK.is_valid({**as_json(PURE), "label_epsilon": 0.1, "label_delta": 0.0})


# ------------------------------------------------------------------------------------------------------------ inspect


def inspect(place: Any, *, code: int = 0) -> Any:
    done = CliRunner().invoke(app, ["inspect", str(place), "--json"])
    assert done.exit_code == code, done.output
    return json.loads(done.stdout) if code == 0 else done.output


@pytest.mark.parametrize("seed", [None, 1], ids=["secure", "seeded"])
def test_inspect_prints_what_a_release_carries(tmp_path, seed):
    release = labeldp.privatize(
        [0, 1, 2, 2], labeldp.RandomizedResponse(1.0, n_classes=3), persons=[7, 7, 8, 9], rng=seed
    )
    release.save(tmp_path / "out")
    told = inspect(tmp_path / "out")["guarantee"]
    CHECK.validate(told)
    assert told["exact"] == json.loads((tmp_path / "out" / "release.json").read_text())["guarantee"]
    CHECK_EXACT.validate(told["exact"])
    assert (told["unit"], told["seeded"]) == ("person", seed is not None)
    assert Guarantee.from_json(told["exact"]) == release.guarantee


@pytest.fixture(scope="module")
def fitted() -> LabelPrivateClassifier:
    rows = np.random.default_rng(0).normal(size=(200, 2))
    return LabelPrivateClassifier(epsilon=2.0, classes=[False, True]).fit(rows, rows[:, 0] > 0)


def test_inspect_prints_the_promise_of_a_model(tmp_path, fitted):
    save_model(fitted, tmp_path / "alone.skops")
    in_pipeline = make_pipeline(StandardScaler().fit(np.eye(2)), fitted)
    save_model(in_pipeline, tmp_path / "pipeline.skops")
    for name in ("alone", "pipeline"):
        told = inspect(tmp_path / f"{name}.skops")["guarantee"]
        CHECK.validate(told)
        assert Guarantee.from_json(told["exact"]) == fitted.guarantee_, name
        CHECK_EXACT.validate(load_model(tmp_path / f"{name}.skops").facts_["guarantee"])


def test_a_model_without_a_promise_has_none(tmp_path):
    save_model(LogisticRegression().fit(np.eye(2), [0, 1]), tmp_path / "raw.skops")
    assert inspect(tmp_path / "raw.skops")["guarantee"] is None
    told = CliRunner().invoke(app, ["inspect", str(tmp_path / "raw.skops")])
    assert "says nothing about the labels" in " ".join(told.stdout.split())


def test_a_promise_that_stands_beside_a_model(tmp_path, fitted, monkeypatch):
    """Models of ratings were once saved so, without their learner. Nobody can today; of other models it says nothing."""
    monkeypatch.setattr("labeldp.learn.saved.PROMISE", frozenset())  # as it was written then, and as a forger writes it
    ratings = MatrixFactorisation(factors=2, sweeps=2, burn=1, pair_features=0, random_state=0)
    ratings.fit([(0, 0), (0, 1), (1, 0), (1, 1)] * 3, [1, 2, 3, 4] * 3)
    told, forged = fitted.guarantee_.to_json(), copy.deepcopy(fitted.guarantee_.to_json())
    forged["loss"] = {"kind": "perfect"}
    save_model(ratings, tmp_path / "old.skops", facts={"guarantee": told})
    save_model(ratings, tmp_path / "forged.skops", facts={"guarantee": forged})
    save_model(LogisticRegression().fit(np.eye(2), [0, 1]), tmp_path / "raw.skops", facts={"guarantee": told})
    assert Guarantee.from_json(inspect(tmp_path / "old.skops")["guarantee"]["exact"]) == fitted.guarantee_
    assert "Do not use this file" in " ".join(inspect(tmp_path / "forged.skops", code=4).split())
    assert inspect(tmp_path / "raw.skops")["guarantee"] is None


def test_the_schema_can_be_asked_for():
    done = CliRunner().invoke(app, ["inspect", "--schema"])
    assert (done.exit_code, json.loads(done.stdout)) == (0, SCHEMA)
