"""Tables of persons: her rows in any file and batch, the same answers in memory, here and on a cluster."""

import importlib.util
import json
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.base import clone

from labeldp import (
    Guarantee,
    InformativeResponse,
    LabelPrivateClassifier,
    Ledger,
    ModelPrior,
    Persons,
    RandomizedResponse,
    RRWithPrior,
    Unit,
    load_release,
    privatize,
)
from labeldp.engines import privatize_table, train_released
from labeldp.errors import AccountError, AccountWarning, BudgetError, LabelDPError, PrivacyError
from labeldp.learn import SoftmaxRegression
from labeldp.release.labels import SensitiveLabels
from labeldp.release.persons import plan_answers

CLASSES = ("high", "low", "middle")
ENGINES = [
    "local",
    pytest.param("dask", marks=pytest.mark.skipif(not importlib.util.find_spec("distributed"), reason="no dask")),
]


def make_stays(n=3000, persons=700, seed=0, *, text=False):
    """A table of stays: a patient's rows are scattered over all of it."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 3, n)
    ids = rng.zipf(1.7, n) % persons
    return pa.table(
        {
            "x": rng.normal(size=n) + codes,
            "patient": pa.array([f"p{i}" for i in ids]) if text else pa.array(ids),
            "level": pa.array(np.asarray(CLASSES, dtype=object)[codes]),
            "flag": codes == 1,
            "row": np.arange(n),
        }
    )


def write_folder(table, folder, files=3):
    folder.mkdir()
    step = -(-len(table) // files)
    for place in range(files):
        pq.write_table(table.slice(place * step, step), folder / f"part-{place}.parquet", row_group_size=301)
    return folder


def in_memory(table, label, mechanism, classes, *, way="common", rng=3):
    labels = SensitiveLabels(table[label].to_pylist(), classes=classes)
    return privatize(labels, mechanism, persons=table["patient"], persons_way=way, rng=rng)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("text", [False, True])
def test_a_folder_is_answered_as_one_call_in_memory(engine, text, tmp_path):
    table = make_stays(text=text)
    source = write_folder(table, tmp_path / "stays")
    extra = {"workers": 2} if engine == "dask" else {}
    done = privatize_table(
        source,
        label="level",
        to=tmp_path / "out",
        epsilon=1.0,
        persons="patient",
        rng=3,
        engine=engine,
        batch_rows=97,
        **extra,
    )
    release = done.load()
    alone = in_memory(table, "level", InformativeResponse(1.0), done.classes)
    assert release.rows.tolist() == alone.rows.tolist()
    assert release.codes.tolist() == alone.codes.tolist()
    assert np.array_equal(release.channel.likelihood(release.codes), alone.channel.likelihood(alone.codes))
    persons = Persons.of(table["patient"])
    assert len(release) == persons.n_persons == done.answered
    assert (release.n_rows, done.rows) == (3000, 3000)
    assert release.guarantee.unit is Unit.PERSON
    assert release.guarantee.epsilon() == 1.0
    written = pq.read_table(tmp_path / "out" / "labels")
    mine = np.zeros(3000, bool)
    mine[release.rows] = True
    column = written["level"] if "level" in written.column_names else written["_labeldp_output"]
    assert np.array_equal(column.is_valid().to_numpy(), mine)
    assert written["patient"].to_pylist() == table["patient"].to_pylist()


@pytest.mark.parametrize(
    ("epsilon", "way", "mechanism"),
    [
        (9.0, "common", RandomizedResponse(9.0)),
        (1.0, "group", RandomizedResponse(1.0)),
        (9.0, "common", InformativeResponse(9.0)),
        (1.0, "group", InformativeResponse(1.0)),
    ],
)
def test_several_answers_and_group_privacy(epsilon, way, mechanism, tmp_path):
    table = make_stays()
    source = write_folder(table, tmp_path / "stays")
    options = {"persons": "patient", "persons_way": way, "mechanism": mechanism}
    done = privatize_table(source, label="level", to=tmp_path / "out", rng=3, **options)
    release, alone = done.load(), in_memory(table, "level", mechanism, done.classes, way=way)
    plan = plan_answers(Persons.of(table["patient"]), mechanism, way=way, n_classes=3)
    assert len(release) == len(plan.rows)
    assert plan.person_epsilon() <= epsilon == release.guarantee.epsilon()
    assert release.channel.epsilon <= release.guarantee.for_labels().epsilon() == plan.label_epsilon
    assert release.codes.tolist() == alone.codes.tolist()
    assert (None if release.rows is None else release.rows.tolist()) == (
        None if alone.rows is None else alone.rows.tolist()
    )


def test_what_persons_cannot_have_is_refused_before_anything_is_charged(tmp_path):
    table = make_stays()
    source = write_folder(table, tmp_path / "stays")
    ledger = Ledger(tmp_path / "ledger.db")
    mixed = write_folder(table.set_column(1, "patient", pa.array([0.5] * 3000)), tmp_path / "mixed")
    gone = write_folder(table.set_column(1, "patient", pa.array([None, *range(2999)])), tmp_path / "gone")
    # What a model has cost each label, a person of 50 labels has lost 50 times.
    model = SoftmaxRegression().fit(np.arange(9.0)[:, None], np.repeat(CLASSES, 3))
    paid = ModelPrior(model, guarantee=Guarantee.pure(0.4))
    for place, options, words in [
        (source, {"persons": "level"}, "not be the label"),
        (source, {"persons": "pateint"}, "patient"),
        (source, {"persons": "patient", "persons_way": "shares"}, "persons_way"),
        (source, {"persons": "patient", "row_ids": "row"}, "row_ids"),
        (source, {"persons": "patient", "n_clusters": 3}, "not see labels"),
        (source, {"persons": "patient", "prior": paid}, "cost nothing where persons are given"),
        (mixed, {"persons": "patient"}, "fractions"),
        (gone, {"persons": "patient"}, "1 missing"),
    ]:
        with pytest.raises(LabelDPError, match=words):
            privatize_table(place, label="level", to=tmp_path / "out", epsilon=1.0, ledger=ledger, **options)
    assert not ledger.entries()
    assert not (tmp_path / "out").exists()


def test_files_of_two_types_of_ids_are_refused(tmp_path):
    table = make_stays()
    folder = tmp_path / "two"
    folder.mkdir()
    pq.write_table(table.slice(0, 1500), folder / "a.parquet")
    other = table.slice(1500).set_column(1, "patient", table.slice(1500)["patient"].cast(pa.string()))
    pq.write_table(other, folder / "b.parquet")
    with pytest.raises(LabelDPError):
        privatize_table(folder, label="level", to=tmp_path / "out", epsilon=1.0, persons="patient")


def test_a_class_of_one_person_in_two_files_is_refused(tmp_path):
    table = pa.table(
        {
            "patient": ["a", "b", "c", "a", "b", "c"],
            "level": ["no", "no", "rare", "yes", "yes", "rare"],
            "x": np.arange(6.0),
        }
    )
    folder = write_folder(table, tmp_path / "stays", files=2)
    options = {"label": "level", "epsilon": 1.0, "persons": "patient"}
    with pytest.raises(LabelDPError, match="the owner of row 2 alone"):
        privatize_table(folder, to=tmp_path / "out", **options)
    done = privatize_table(folder, to=tmp_path / "out", classes=["no", "rare", "yes"], **options)
    assert done.answered == 3


@pytest.mark.parametrize("mechanism", [InformativeResponse(1.0), RRWithPrior(1.0)], ids=repr)
def test_beliefs_of_each_row_are_used_for_the_rows_that_are_asked(mechanism, tmp_path):
    table = make_stays()
    prior = np.random.default_rng(1).dirichlet(np.ones(3), 3000)
    for place, name in enumerate(CLASSES):
        table = table.append_column(f"p_{name}", pa.array(prior[:, place]))
    source = write_folder(table, tmp_path / "stays")
    columns = [f"p_{name}" for name in CLASSES]
    done = privatize_table(
        source, label="level", to=tmp_path / "out", mechanism=mechanism, persons="patient", prior_columns=columns, rng=3
    )
    labels = SensitiveLabels(table["level"].to_pylist(), classes=done.classes)
    alone = privatize(labels, mechanism, prior=prior, persons=table["patient"], rng=3)
    release = done.load()
    assert release.codes.tolist() == alone.codes.tolist()
    assert np.array_equal(release.channel.likelihood(release.codes), alone.channel.likelihood(alone.codes))
    assert done.expected_accuracy is None or 0.3 < done.expected_accuracy < 0.8


def test_a_job_is_not_taken_up_with_other_persons(tmp_path, monkeypatch):
    table = make_stays()
    table = table.append_column("ward", pa.array(np.arange(3000) % 11))
    path = tmp_path / "stays.parquet"
    pq.write_table(table, path, row_group_size=500)
    calls = []

    def stop(done, total):
        calls.append(done)
        if len(calls) == 3:
            raise OSError("the disk is full")

    options = {"label": "level", "to": tmp_path / "out", "epsilon": 1.0, "rng": 1, "batch_rows": 200}
    with pytest.raises(LabelDPError, match="partial"):
        privatize_table(path, persons="patient", progress=stop, keep_unfinished=True, **options)
    (job,) = tmp_path.glob(".out.partial-*")
    options.pop("rng")
    for other in ({"persons": "ward"}, {}, {"persons": "patient", "persons_way": "group"}):
        with pytest.raises(LabelDPError, match="same job"):
            privatize_table(path, resume=job, **other, **options)
    done = privatize_table(path, persons="patient", resume=job, **options)
    whole = in_memory(table, "level", InformativeResponse(1.0), done.classes, rng=1)
    assert done.load().codes.tolist() == whole.codes.tolist()


def shuffle_files(table, folder):
    """The same rows, the files in another order."""
    step = len(table) // 3
    for place, at in enumerate((2, 0, 1)):
        pq.write_table(table.slice(at * step, step), folder / f"part-{place}.parquet", row_group_size=301)


def rename_persons(table, folder):
    """The same rows belong together, and are other people's: the same rows would be asked."""
    others = pa.array(table["patient"].to_numpy() + 10_000)
    again = table.set_column(1, "patient", others)
    for place in range(3):
        pq.write_table(again.slice(1000 * place, 1000), folder / f"part-{place}.parquet", row_group_size=301)


def give_away_a_row(table, folder):
    """One row of someone who has several, and is not asked about it, becomes another person's in the second file."""
    ids = table["patient"].to_numpy().copy()
    asked = in_memory(table, "level", InformativeResponse(1.0), CLASSES).rows
    counts = np.bincount(ids)
    row = next(at for at in range(1000, 2000) if at not in set(asked.tolist()) and counts[ids[at]] > 2)
    ids[row] = ids[asked[0]]
    again = table.set_column(1, "patient", pa.array(ids))
    for place in range(3):
        pq.write_table(again.slice(1000 * place, 1000), folder / f"part-{place}.parquet", row_group_size=301)


@pytest.mark.parametrize("change", [shuffle_files, rename_persons, give_away_a_row])
def test_a_killed_job_is_not_taken_up_where_its_persons_have_changed(change, tmp_path):
    """Her rows are in several files. The charge is for those whom the ledger knows: other ids under it would be released for nothing."""
    table = make_stays()
    assert len(set(table["patient"][:1000].to_pylist()) & set(table["patient"][1000:].to_pylist())) > 20
    source = write_folder(table, tmp_path / "stays")
    ledger = Ledger(tmp_path / "ledger.db")
    options = {"label": "level", "to": tmp_path / "out", "epsilon": 1.0, "persons": "patient", "label_set": "stays"}
    options |= {"ledger": ledger, "batch_rows": 200, "classes": CLASSES}
    drawn = []

    def stop(done, total):
        drawn.append(done)
        if 2 * done > total:
            raise OSError("the disk is full")

    with pytest.raises(LabelDPError, match="partial"):
        privatize_table(source, progress=stop, keep_unfinished=True, rng=3, **options)
    assert drawn
    (job,) = tmp_path.glob(".out.partial-*")
    change(table, source)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AccountWarning)  # other rows under a name that is given
        with pytest.raises(LabelDPError, match="same job"):
            privatize_table(source, resume=job, **options)
    for place in range(3):  # as it was
        pq.write_table(table.slice(1000 * place, 1000), source / f"part-{place}.parquet", row_group_size=301)
    done = privatize_table(source, resume=job, **options)
    assert done.load().codes.tolist() == in_memory(table, "level", InformativeResponse(1.0), CLASSES).codes.tolist()
    assert len(ledger.entries()) == 1


def test_the_ledger_knows_persons_and_never_mixes_units(tmp_path):
    table = make_stays()
    first, second = table.slice(0, 1500), table.slice(1500)
    for name, part in (("first", first), ("second", second)):
        pq.write_table(part, tmp_path / f"{name}.parquet")
    ledger = Ledger(tmp_path / "ledger.db", budget=1.5)
    options = {"label": "level", "epsilon": 1.0, "ledger": ledger, "persons": "patient"}
    privatize_table(tmp_path / "first.parquet", to=tmp_path / "one", **options)
    # Her other rows, in another file: the account of these persons is not asked for twice the budget.
    with pytest.raises((AccountError, BudgetError, AccountWarning)):
        privatize_table(tmp_path / "second.parquet", to=tmp_path / "two", **options)
    # The same rows, promised about labels: two units.
    with pytest.raises((PrivacyError, AccountError), match=r"unit|label_set"):
        privatize_table(tmp_path / "first.parquet", label="level", epsilon=0.1, ledger=ledger, to=tmp_path / "three")
    assert len(ledger.entries()) == 1


def test_the_command_names_a_person(run, tmp_path):
    table = make_stays()
    path = tmp_path / "stays.parquet"
    pq.write_table(table, path)
    arguments = [
        "privatize",
        str(path),
        "--label",
        "flag",
        "--epsilon",
        "1",
        "--to",
        str(tmp_path / "out"),
        "--seed",
        "3",
    ]
    done = run([*arguments, "--person", "patient", "--json"])
    facts = json.loads(done.stdout)
    persons = Persons.of(table["patient"])
    assert (facts["rows"], facts["answered"]) == (3000, persons.n_persons)
    assert facts["guarantee"]["unit"] == "person"
    alone = in_memory(table, "flag", RandomizedResponse(1.0), (False, True))
    assert load_release(tmp_path / "out").codes.tolist() == alone.codes.tolist()
    shown = run(["inspect", str(tmp_path / "out")]).stdout
    assert "all labels of one person" in " ".join(shown.split())
    assert f"{persons.n_persons:,}" in shown


def test_whoever_reads_the_release_knows_which_rows_are_answered(run, tmp_path):
    table = make_stays(600, 200)
    source = write_folder(table, tmp_path / "stays")
    done = privatize_table(
        source,
        label="flag",
        to=tmp_path / "out",
        epsilon=4.0,
        persons="patient",
        rng=3,
        mechanism=RandomizedResponse(4.0),
    )
    release, X = done.load(), np.column_stack([table["x"].to_numpy(), table["row"].to_numpy() / 600])
    features = X[release.rows]
    targets = release.channel.unbiased_targets(release.codes)
    alone = SoftmaxRegression(l2=1e-3).fit_targets(features, targets, classes=[False, True])
    columns = pq.read_table(source)
    assert columns["x"].to_pylist() == table["x"].to_pylist()
    whole = train_released(SoftmaxRegression(l2=1e-3), tmp_path / "out", columns=["x"], batch_rows=77)
    one = SoftmaxRegression(l2=1e-3).fit_targets(features[:, :1], targets, classes=[False, True])
    assert np.allclose(whole.coef_, one.coef_, rtol=1e-4, atol=1e-6)
    assert alone.coef_.shape == (2, 2)
    model = LabelPrivateClassifier(SoftmaxRegression(), epsilon=4.0, correction="forward")
    by_all, by_some = (clone(model).fit_release(x, release) for x in (X, features))
    assert np.allclose(by_all.predict_proba(X), by_some.predict_proba(X))
    assert by_all.guarantee_.unit is Unit.PERSON
    with pytest.raises(LabelDPError, match="of 600 rows"):
        clone(model).fit_release(X[:-1], release)
    run(["train", str(tmp_path / "out"), "--to", str(tmp_path / "model.skops")])
    run(["report", str(tmp_path / "out"), "--to", str(tmp_path / "page.html")])
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    for words in (
        "all labels of one person replaced",
        "For a person",
        "For one label",
        f"{len(release):,} of 600 rows",
    ):
        assert words in text
