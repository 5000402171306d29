"""`labeldp pate`: a student and its promise come out, no teacher and no raw label does."""

from __future__ import annotations

import functools
import json
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from labeldp import Ledger
from labeldp.learn import PATE, MultiLabelPATE, SoftmaxRegression, load_model, save_model

N_PRIVATE, N_PUBLIC = 1200, 60
LINE = "pate private.parquet --label income --public public.parquet --drop id --teachers 60 -e 8 --to student"
SEVERAL = "pate several.parquet -l old -l man --public public.parquet --drop id --teachers 30 -e 400 --accept-large-epsilon --to student"


def people(n, seed):
    rng = np.random.default_rng(seed)
    age, sex = rng.normal(40, 10, n).round(1), rng.choice(["f", "m"], n)
    return pa.table({"id": np.arange(n), "age": age, "sex": sex}), age, sex


@pytest.fixture
def tables(folder):
    """Private tables of one label and of two, and public rows of their features."""
    features, age, sex = people(N_PRIVATE, 1)
    pq.write_table(features.append_column("income", pa.array(np.where(age > 40, "high", "low"))), "private.parquet")
    several = features.append_column("old", pa.array((age > 40).astype(int)))
    pq.write_table(several.append_column("man", pa.array(sex == "m")), "several.parquet")
    pq.write_table(people(N_PUBLIC, 2)[0], "public.parquet")
    return folder


def test_the_student_predicts_raw_tables_and_carries_its_promise(run, run_json, tables):
    facts = run_json(f"{LINE} --answers answers.parquet --ledger l --budget 9 --budget-delta 1e-4")
    assert facts["epsilon"] <= 8.0
    assert 0 < facts["answered"] <= facts["asked"] <= N_PUBLIC
    assert (facts["guarantee"]["unit"], facts["seeded"], facts["features"]) == ("label", False, ["age", "sex"])
    [entry] = run_json("ledger l")["entries"]
    assert (entry["label_set"], entry["rows"]) == ("private.parquet:income", N_PRIVATE)
    assert entry["guarantee"] == facts["guarantee"]["text"]
    run("predict student public.parquet --to predictions.parquet --keep age")
    found = pq.read_table("predictions.parquet")
    right = np.where(found["age"].to_numpy() > 40, "high", "low") == found["predicted"].to_numpy(zero_copy_only=False)
    # Some 30 clear answers of 60 teachers at epsilon 8: a coin would be right on 54 of 60 with probability 1e-10.
    assert right.mean() > 0.8
    answers = pq.read_table("answers.parquet")
    assert answers.column_names == ["_labeldp_row", "age", "sex", "income"]
    assert answers.num_rows == facts["answered"]
    assert answers["age"].to_pylist() == [
        pq.read_table("public.parquet")["age"][row].as_py() for row in answers["_labeldp_row"].to_pylist()
    ]
    assert load_model("student")[-1].guarantee_.epsilon(1e-5) <= 8.0


def test_several_labels(run, run_json, tables):
    facts = run_json(f"{SEVERAL} --answers answers.parquet --queries 20 --seed 1")
    assert (facts["aggregation"], facts["asked"], facts["seeded"]) == ("stable-top-k", 20, True)
    assert pq.read_table("answers.parquet").column_names == ["_labeldp_row", "age", "sex", "old", "man"]
    run("predict student public.parquet --to predictions.parquet")
    found = pq.read_table("predictions.parquet")
    assert found.column_names == ["predicted_old", "predicted_man", "probability_old", "probability_man"]
    assert set(found["predicted_man"].to_pylist()) <= {0, 1}
    assert "several" in run("evaluate student several.parquet -l old --public-labels", code=2).stderr


def test_people_are_told(run, tables):
    result = run(f"{LINE} --seed 1")
    assert "taught student" in result.stdout
    assert "one label replaced; trusts a curator" in result.stdout
    assert "NOT PRIVATE" in result.stderr


def test_a_refused_charge_leaves_votes_to_go_on_from(run, run_json, tables):
    run("ledger l --set-budget 1 --delta 1e-4")
    line = f"{LINE} --ledger l --checkpoint votes"
    run(line, code=3)
    assert not (tables / "student").exists()
    assert len(list((tables / "votes").glob("votes-*.npy"))) == 60
    assert (tables / "votes").stat().st_mode & 0o077 == 0
    run("ledger l --set-budget 9 --delta 1e-4")
    # A vote that was changed is refused: so the votes on disk are read, and nobody is asked again.
    path = min((tables / "votes").glob("votes-*.npy"))
    kept = path.read_bytes()
    np.save(path, np.ones(N_PUBLIC, np.int32))
    run(f"{line} --answers answers.parquet", code=4)
    path.write_bytes(kept)
    run_json(f"{line} --answers answers.parquet")
    assert not (tables / "votes").exists()
    assert pq.read_table("answers.parquet").num_rows > 0


def test_encoding_learns_from_public_rows_alone(run, tables):
    run(f"{LINE} --unit record_replace")
    encoder = load_model("student")[0]
    age = pq.read_table("public.parquet")["age"].to_numpy()
    assert encoder.numbers_["age"] == [float(age.mean()), float(age.std())]


BAD = {
    LINE.replace("income", "incmoe"): "Did you mean `income`",
    LINE.replace("--public public", "--public pubilc"): "Did you mean",
    f"{LINE} --aggregation stable-top-k": "fit the number of labels",
    f"{SEVERAL} --aggregation gnmax": "fit the number of labels",
    f"{LINE} --tau 2": "be left out",
    f"{SEVERAL} --threshold 0.5": "be left out",
    f"{LINE} --label income": "name each column once",
    f"{LINE} --queries 61": "n_queries",
    LINE.replace("--teachers 60", "--teachers 1201"): "n_teachers",
    LINE.replace("-e 8", "-e 0"): "epsilon",
    f"{LINE} --delta 0": "delta",
    f"{LINE} --threshold 2": "threshold",
    f"{LINE} --classes high": "two or more",
    LINE.replace("--drop id", "--drop idd"): "Did you mean `id`",
    LINE.replace("--drop id", "--drop id,age,sex"): "have features",
    LINE.replace("--to student", "--to public.parquet"): "new file",
    f"{LINE} --answers public.parquet": "new file",
    SEVERAL.replace("-l man", "-l sex"): "hold 0 and 1",
    f"{SEVERAL} --aggregation pate-tau --tau 3": "tau",
}


@pytest.mark.parametrize("line", BAD)
def test_bad_lines(refused, tables, line):
    ledger = Ledger("l", budget=99.0, delta=1e-2)
    assert BAD[line] in refused(f"{line} --ledger l")
    assert ledger.entries() == ()


@pytest.mark.parametrize(
    ("values", "says"), [([0, None], "missing"), ([0.0, np.nan], "another number"), ([0, 2], "another number")]
)
def test_bad_columns_of_several(refused, tables, values, says):
    table = pq.read_table("several.parquet")
    bad = pa.array((values * N_PRIVATE)[:N_PRIVATE])
    pq.write_table(table.set_column(table.column_names.index("old"), "old", bad), "several.parquet")
    assert says in refused(SEVERAL)


def test_a_public_table_without_a_feature_is_refused(refused, tables):
    pq.write_table(pq.read_table("public.parquet").rename_columns(["id", "agge", "sex"]), "public.parquet")
    told = refused(LINE)
    assert "Did you mean `agge`" in told
    assert "--drop age" in told


def test_a_class_that_no_part_has_is_fine(run_json, tables):
    facts = run_json(f"{LINE} --classes high,low,none --aggregation gnmax --seed 2")
    assert facts["answered"] == N_PUBLIC
    assert load_model("student").classes_.tolist() == ["high", "low", "none"]


@functools.lru_cache
def fitted(several):
    """A learner whose teacher's template, like its labels, holds a number to look for in the file."""
    rng = np.random.default_rng(0)
    X, X_public = rng.normal(size=(900, 3)), rng.normal(size=(20, 3))
    template = SoftmaxRegression().fit(X, np.where(X[:, 1] > 0, "raw-secret-b", "raw-secret-a"))
    settings = {"n_teachers": 20, "epsilon": 400.0, "random_state": 0}
    if several:
        return MultiLabelPATE(**settings).fit(X, X > 0, X_public), X
    y = np.where(X[:, 0] > 0, "yes", "no")
    return PATE(template, classes=["no", "yes"], **settings).fit(X, y, X_public), X


def unpacked(path):
    with zipfile.ZipFile(path) as archive:
        return {i.filename: archive.read(i) for i in archive.infolist()}


def holding_labels(content):
    """Names of the parts that hold a raw label; NumPy writes text with four bytes a letter."""
    return [name for name, data in content.items() if b"raw-secret" in data.replace(b"\0", b"")]


@pytest.mark.parametrize("several", [False, True])
def test_saved_learners_come_back_with_their_promise(tmp_path, several):
    model, X = fitted(several)
    save_model(model, tmp_path / "m", facts={"label": "ill"})
    back = load_model(tmp_path / "m")
    assert np.array_equal(back.predict_proba(X), model.predict_proba(X))
    assert np.array_equal(back.predict(X), model.predict(X))
    assert back.guarantee_ == model.guarantee_
    assert (back.facts_["seeded"], back.facts_["n_answered"]) == (True, model.n_answered_)
    # Saving left the model as it was, and what was loaded can be saved again.
    assert model.answers_ is not None
    assert model.random_state == 0


@pytest.mark.parametrize("several", [False, True])
def test_no_teacher_and_no_raw_label_is_in_the_file(tmp_path, several):
    model, X = fitted(several)
    save_model(model, tmp_path / "m")
    back = load_model(tmp_path / "m")
    assert (back.teacher, back.student, back.ledger, back.random_state, back.checkpoint) == (None,) * 5
    content = unpacked(tmp_path / "m")
    assert not holding_labels(content)
    # 20 answers, let alone 900 labels or 20 teachers, need longer arrays than a linear student of 3 features:
    # 8 coefficients of 8 bytes behind a header of 128.
    arrays = [len(data) for name, data in content.items() if name.endswith(".npy")]
    assert max(arrays) < 128 + len(X)
    assert max(arrays) <= 128 + 8 * 8
    schema = json.loads(content["schema.json"])
    assert "answers_" not in json.dumps(schema)


def test_the_search_for_raw_labels_can_find_some(tmp_path):
    """The broken twin: a file that keeps the teacher's template is caught by the same search."""
    model, _ = fitted(False)
    save_model(model.teacher, tmp_path / "m")
    assert holding_labels(unpacked(tmp_path / "m"))
