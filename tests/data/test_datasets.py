"""Data sets by name: what they hold, that splits see no label, and that a wrong file is told apart."""

from __future__ import annotations

import gzip
import io
import re
import runpy
import sys
import tarfile
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import labeldp.data
from labeldp.data import Dataset, load, names, pictures
from labeldp.data.dataset import MOST_CATEGORIES, choose_test_rows, encode_tables, expect, find_files, read_idx
from labeldp.data.loaders import SHAPES, clinc150
from labeldp.errors import LabelDPError


def tiny(**changes) -> Dataset:
    given = {
        "name": "tiny",
        "X_train": np.zeros((4, 2), np.float32),
        "y_train": np.array([0, 1, 1, 0]),
        "X_test": np.zeros((2, 2), np.float32),
        "y_test": np.array([0, 1]),
        "classes": ("no", "SECRET"),
        "feature_names": ("a", "b"),
        "label_name": "ill",
        "sensitive_label": "an illness",
        "licence": "none",
        "citation": "made up",
    }
    return Dataset(**(given | changes))


# ---------------------------------------------------------------------------------------------------------- bundled


def test_adult_is_the_census_table_with_its_attribution():
    adult = load("adult")
    assert (adult.X_train.shape, adult.X_test.shape) == ((32_561, 14), (16_281, 14))
    # The counts of the source files, as shared/data/README.md gives them.
    assert (int(adult.y_train.sum()), int(adult.y_test.sum())) == (7_841, 3_846)
    assert adult.classes == ("<=50K", ">50K")
    assert "10.24432/C5XW20" in adult.citation
    assert adult.licence == "CC BY 4.0"
    assert "?" in adult.X_train["workclass"].unique().to_pylist()
    assert {"income", "split"}.isdisjoint(adult.feature_names)
    assert all(value == value.strip() for value in adult.X_train["native-country"].unique().to_pylist())


def test_adult_file_is_small_and_names_its_authors(repository):
    path = repository / "src" / "labeldp" / "data" / "adult.parquet"
    metadata = pq.read_schema(path).metadata
    assert b"Becker" in metadata[b"attribution"]
    assert b"CC BY 4.0" in metadata[b"licence"]
    assert path.stat().st_size < 700_000  # what the package may weigh for its demo


@pytest.mark.data
def test_adult_file_is_what_its_script_makes(shared_data, repository, tmp_path, monkeypatch):
    source, target = shared_data("adult"), tmp_path / "adult.parquet"
    arguments = [str(source / "adult.data.gz"), str(source / "adult.test.gz"), str(target)]
    monkeypatch.setattr(sys, "argv", ["make_adult.py", *arguments])
    runpy.run_path(str(repository / "scripts" / "make_adult.py"), run_name="__main__")
    made, bundled = pq.read_table(target), pq.read_table(repository / "src" / "labeldp" / "data" / "adult.parquet")
    assert made.equals(bundled, check_metadata=True)


def test_digits_are_scaled_and_split_the_same_every_time():
    first, second = load("digits"), load("digits")
    assert np.array_equal(first.X_train, second.X_train)
    assert np.array_equal(first.y_test, second.y_test)
    assert first.X_train.dtype == np.float32
    assert first.X_train.min() == 0
    assert first.X_train.max() == 1
    assert len(first.y_train) + len(first.y_test) == 1_797
    assert first.image_shape == (8, 8)
    assert len(first.feature_names) == 64


def test_bundled_sets_need_no_directory(monkeypatch):
    monkeypatch.delenv("LABELDP_DATA", raising=False)
    assert [load(name).name for name in names(bundled=True)] == ["adult", "digits"]


# ------------------------------------------------------------------------------------------------- from a directory


@pytest.mark.data
@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_idx_images(name, shared_data):
    dataset = load(name, directory=shared_data(name).parent)
    assert dataset.X_train.shape == (60_000, 784)
    assert dataset.X_test.shape == (10_000, 784)
    assert dataset.X_train.dtype == np.float32
    assert dataset.X_train.min() == 0
    assert dataset.X_train.max() == 1
    assert dataset.image_shape == (28, 28)
    # Both sets have 1,000 of each class in the test part, or nearly so (MNIST's rarest digit, 5, has 892).
    assert np.bincount(dataset.y_test, minlength=10).min() >= 892


def write_idx(path, array):
    """An idx file of bytes, packed: the canonical format of MNIST and its kin."""
    head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes()
    path.write_bytes(gzip.compress(head + array.astype(np.uint8).tobytes()))


def test_kmnist_is_read_from_its_four_files(tmp_path, monkeypatch):
    monkeypatch.setitem(pictures.ROWS, "idx", (6, 3))
    rng, folder = np.random.default_rng(0), tmp_path / "kmnist"
    folder.mkdir()
    images, labels = rng.integers(0, 256, (9, 28, 28)), np.arange(9)
    for part, rows in (("train", slice(0, 6)), ("t10k", slice(6, 9))):
        write_idx(folder / f"{part}-images-idx3-ubyte.gz", images[rows])
        write_idx(folder / f"{part}-labels-idx1-ubyte.gz", labels[rows])
    dataset = load("kmnist", directory=tmp_path)
    assert dataset.classes == ("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo")
    assert dataset.y_test.tolist() == [6, 7, 8]
    assert np.allclose(dataset.X_train.reshape(6, 28, 28) * 255, images[:6])


def make_cifar100(rows):
    """Pictures and the bytes of the three files of the binary version: coarse class, fine class, planes of R, G, B."""
    rng = np.random.default_rng(0)
    images, fine = rng.integers(0, 256, (sum(rows), 32, 32, 3), np.uint8), np.arange(sum(rows)) % 100
    parts, start = [], 0
    for count in rows:
        one = slice(start, start + count)
        planes = images[one].transpose(0, 3, 1, 2).reshape(count, -1)
        parts.append(np.column_stack([fine[one] // 5, fine[one], planes]).astype(np.uint8).tobytes())
        start += count
    names = "\n".join(f"thing_{i}" for i in range(100)) + "\n"
    return (
        images,
        fine,
        dict(zip(("train.bin", "test.bin", "fine_label_names.txt"), (*parts, names.encode()), strict=True)),
    )


@pytest.mark.parametrize("packed", [True, False])
def test_cifar100_is_read_from_its_binary_version(packed, tmp_path, monkeypatch):
    monkeypatch.setitem(pictures.ROWS, "cifar", (5, 2))
    folder = tmp_path / "cifar100"
    folder.mkdir()
    images, fine, files = make_cifar100((5, 2))
    if packed:
        with tarfile.open(folder / "cifar-100-binary.tar.gz", "w:gz") as archive:
            for name, content in {**files, "coarse_label_names.txt": b"x\n"}.items():
                member = tarfile.TarInfo(f"cifar-100-binary/{name}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    else:
        for name, content in files.items():
            (folder / name).write_bytes(content)
    dataset = load("cifar100", directory=tmp_path)
    assert (dataset.n_classes, dataset.classes[99], dataset.image_shape) == (100, "thing_99", (32, 32, 3))
    assert dataset.y_train.tolist() + dataset.y_test.tolist() == fine.tolist()
    assert np.allclose(dataset.X_test.reshape(2, 32, 32, 3) * 255, images[5:])
    # The files of the true set have more rows: these are a part of it, and are refused as such.
    monkeypatch.undo()
    with pytest.raises(LabelDPError, match=r"must have bytes (in train\.bin|of 50,000 pictures):"):
        load("cifar100", directory=tmp_path)


def test_the_pickled_version_of_cifar100_is_not_looked_for(tmp_path):
    (tmp_path / "cifar100").mkdir()
    (tmp_path / "cifar100" / "cifar-100-python.tar.gz").write_bytes(b"a pickle inside")
    with pytest.raises(LabelDPError, match=r"cifar100/cifar-100-binary\.tar\.gz, got no such file"):
        load("cifar100", directory=tmp_path)


@pytest.mark.data
def test_clinc150_is_texts_and_intents(shared_data):
    directory = shared_data("clinc150").parent
    dataset = load("clinc150", directory=directory)
    assert (dataset.X_train.num_rows, dataset.X_test.num_rows, dataset.n_classes) == (15_000, 4_500, 150)
    assert dataset.X_train.column_names == ["text"]
    assert set(np.bincount(dataset.y_test).tolist()) == {30}
    assert dataset.classes == tuple(sorted(dataset.classes))
    apart = clinc150(directory, validation=True)
    assert apart.X_test.num_rows == 3_000
    assert set(apart.X_test["text"].to_pylist()).isdisjoint(dataset.X_test["text"].to_pylist())
    with pytest.raises(LabelDPError, match="TextFeatures"):
        dataset.matrix()
    assert dataset.table().column_names == ["text", "intent"]


def write_intents(folder, *, rows=15_000, header="text,intent"):
    (folder / "clinc150").mkdir()
    for name, count in (("train", rows), ("val", 3_000), ("test", 4_500)):
        lines = [header, *(f"sentence {i},intent {i % 150}" for i in range(count))]
        (folder / "clinc150" / f"{name}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_clinc150_of_the_right_shape_is_read_and_any_other_refused(tmp_path):
    write_intents(tmp_path)
    assert load("clinc150", directory=tmp_path).classes[1] == "intent 1"
    for number, changes in enumerate(({"rows": 14_999}, {"rows": 15_150}, {"header": "text,label"})):
        folder = tmp_path / str(number)
        folder.mkdir()
        write_intents(folder, **changes)
        with pytest.raises(LabelDPError, match="another file"):
            load("clinc150", directory=folder)


@pytest.mark.data
def test_directory_from_the_environment(shared_data, monkeypatch):
    monkeypatch.setenv("LABELDP_DATA", str(shared_data("credit-default").parent))
    credit = load("credit-default")
    assert len(credit.y_train) + len(credit.y_test) == 30_000
    assert int(credit.y_train.sum() + credit.y_test.sum()) == 6_636
    assert "ID" in credit.X_train.column_names
    assert "ID" in credit.identifiers
    assert not any("default" in name for name in credit.feature_names)


def test_numbers_have_no_classes():
    numbers = {"y_train": np.array([0.5, 1.0, 2.0, 3.0]), "y_test": np.array([1.0, 2.0])}
    assert "numbers of `ill`" in repr(tiny(**numbers, classes=()))
    with pytest.raises(LabelDPError, match="finite numbers without classes"):
        tiny(**numbers)
    with pytest.raises(LabelDPError, match="finite numbers without classes"):
        tiny(y_train=np.array([0.5, 1.0, np.nan, 3.0]), y_test=np.array([1.0, 2.0]), classes=())


@pytest.mark.data
def test_no_patient_is_on_both_sides(shared_data):
    stays = load("diabetes-readmission", directory=shared_data("diabetes-readmission").parent)
    train, test = (set(X["patient_nbr"].to_pylist()) for X in (stays.X_train, stays.X_test))
    assert train.isdisjoint(test)
    assert len(stays.y_train) + len(stays.y_test) == 101_766
    assert np.bincount(np.concatenate([stays.y_train, stays.y_test])).tolist() == [54_864, 35_545, 11_357]
    # "None" is a word here (no test was made), not a missing value.
    assert stays.X_train["max_glu_serum"].null_count == 0


@pytest.mark.data
@pytest.mark.parametrize("name", sorted(SHAPES))
def test_multilabel_sets(name, shared_data):
    dataset = load(name, directory=shared_data("multilabel").parent)
    assert dataset.multilabel
    assert set(np.unique(dataset.y_train)) == {0, 1}
    assert dataset.y_train.shape == (SHAPES[name][0], SHAPES[name][3])
    assert np.isfinite(dataset.X_train).all()
    assert name != "mediamill" or dataset.X_train.max() < 1  # kept in millionths


@pytest.mark.data
def test_movielens(shared_data):
    dataset = load("movielens-1m", directory=shared_data("movielens-1m").parent)
    assert len(dataset.y_train) + len(dataset.y_test) == 1_000_209
    assert dataset.classes[dataset.y_train.max()] == "5"
    assert dataset.y_train.min() == 0
    assert {"gender", "age", "occupation", "genre_Drama"} <= set(dataset.feature_names)


@pytest.mark.data
def test_cifar10(shared_data):
    dataset = load("cifar10", directory=shared_data("cifar10").parent)
    assert dataset.X_train.shape == (50_000, 3_072)
    assert dataset.image_shape == (32, 32, 3)
    assert (np.bincount(dataset.y_train) == 5_000).all()


# ----------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize("name", sorted(set(names()) - set(names(bundled=True))))
def test_absent_files_are_named_with_their_folder(name, tmp_path, monkeypatch):
    folder = "multilabel" if name in SHAPES else name
    with pytest.raises(LabelDPError, match=f"must hold {folder}/.*Looked in {re.escape(str(tmp_path))}.*LABELDP_DATA"):
        load(name, directory=tmp_path)
    monkeypatch.delenv("LABELDP_DATA", raising=False)
    with pytest.raises(LabelDPError, match=r"Set LABELDP_DATA to the folder that has .*nothing is downloaded"):
        load(name)


def test_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(LabelDPError, match="Did you mean `fashion-mnist`"):
        load("fashon-mnist")


def idx(shape, *, magic=8) -> bytes:
    axes = b"".join(n.to_bytes(4, "big") for n in shape)
    return bytes([0, 0, magic, len(shape)]) + axes + bytes(int(np.prod(shape)))


def test_idx_round_trip(tmp_path):
    path = tmp_path / "images.gz"
    content = idx((2, 3))[:-6] + bytes(range(6))
    path.write_bytes(gzip.compress(content))
    assert read_idx(path, shape=(2, 3)).tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (gzip.compress(idx((3, 3))), "must have the shape"),
        (gzip.compress(idx((2, 3), magic=9)), "must have the magic number"),
        (gzip.compress(idx((2, 3))[:-1]), "must be an idx file of bytes"),
        (gzip.compress(idx((2, 3)))[:-9], "must be an idx file of bytes"),
        (b"<html>not found</html>", "must be an idx file of bytes"),
    ],
    ids=["shape", "magic", "short", "cut gzip", "web page"],
)
def test_wrong_idx_file_is_told_apart(content, message, tmp_path):
    path = tmp_path / "images.gz"
    path.write_bytes(content)
    with pytest.raises(LabelDPError, match=message):
        read_idx(path, shape=(2, 3))


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("mnist", "mnist/train-images-idx3-ubyte.gz"),
        ("credit-default", "credit-default/UCI_Credit_Card.csv.gz"),
        ("diabetes-readmission", "diabetes-readmission/dataset_diabetes.zip"),
        ("california-housing", "california-housing/housing.csv.gz"),
        ("motor-claims", "motor-claims/beMTPL97.csv.gz"),
        ("cifar10", "cifar10/cifar10.npz"),
        ("kmnist", "kmnist/train-images-idx3-ubyte.gz"),
        ("cifar100", "cifar100/cifar-100-binary.tar.gz"),
        ("movielens-1m", "movielens-1m/ratings.dat"),
        ("yeast", "multilabel/yeast.npz"),
    ],
)
def test_a_web_page_in_place_of_the_file_is_an_error_that_names_it(name, file, tmp_path):
    path = tmp_path / file
    path.parent.mkdir()
    path.write_bytes(b"<html>not found</html>")
    for other in ("train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"):
        (path.parent / other).write_bytes(b"")
    for other in ("users.dat", "movies.dat"):
        (path.parent / other).write_bytes(b"")
    with pytest.raises(LabelDPError, match=f"`{re.escape(path.name)}` must"):
        load(name, directory=tmp_path)


def test_a_part_of_the_credit_table_is_refused(tmp_path):
    from labeldp.data.loaders import CREDIT_COLUMNS

    path = tmp_path / "credit-default" / "UCI_Credit_Card.csv"  # also without .gz
    path.parent.mkdir()
    path.write_text(",".join(CREDIT_COLUMNS) + "\n" + ",".join("1" for _ in CREDIT_COLUMNS) + "\n")
    with pytest.raises(LabelDPError, match=r"must have rows and defaults \(30000, 6636\), got \(1, 1\)"):
        load("credit-default", directory=tmp_path)


def test_a_zip_without_the_table_is_refused(tmp_path):
    path = tmp_path / "diabetes-readmission" / "dataset_diabetes.zip"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("other.csv", "a\n1\n")
    with pytest.raises(LabelDPError, match=r"holds dataset_diabetes/diabetic_data\.csv"):
        load("diabetes-readmission", directory=tmp_path)


def test_npz_with_pickled_objects_is_refused(tmp_path):
    path = tmp_path / "multilabel" / "yeast.npz"
    path.parent.mkdir()
    array = np.array([{"a": 1}], dtype=object)
    np.savez(path, X_train=array, y_train=array, X_test=array, y_test=array)
    with pytest.raises(LabelDPError, match="must be an npz file"):
        load("yeast", directory=tmp_path)


def test_expect_and_find_accept_what_is_right(tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a").write_bytes(b"")
    assert find_files("set", ("a.gz",), directory=tmp_path) == [tmp_path / "set" / "a"]
    expect(tmp_path, "rows", want=1, got=1)


# ------------------------------------------------------------------------------------------------------ the dataset


def test_repr_shows_no_label():
    assert "SECRET" not in repr(tiny())
    assert "illness" not in repr(tiny())


@pytest.mark.parametrize(
    "changes",
    [
        {"y_train": np.array([0, 1])},
        {"y_train": np.array([0, 1, 2, 0])},
        {"y_test": np.array([0, -1])},
        {"y_test": np.zeros((2, 3), np.uint8)},
    ],
    ids=["too few", "unknown code", "negative code", "too wide"],
)
def test_labels_that_do_not_fit_are_refused(changes):
    with pytest.raises(LabelDPError, match=r"Dataset tiny: `y_(train|test)` must"):
        tiny(**changes)


def test_table_has_the_label_in_words():
    table = tiny().table()
    assert table.column_names == ["a", "b", "ill"]
    assert table["ill"].to_pylist() == ["no", "SECRET", "SECRET", "no"]
    with pytest.raises(LabelDPError, match="`part` must be one of"):
        tiny().table(part="all")


def test_table_of_a_multilabel_set_has_a_column_a_label():
    y = np.eye(4, 2, dtype=np.uint8)
    table = tiny(y_train=y, y_test=y[:2], classes=("red", "green")).table()
    assert table["green"].to_pylist() == [0, 1, 0, 0]


# ------------------------------------------------------------------------------------------------------- the matrix


def test_matrix_is_fitted_on_train_alone_and_takes_unknown_categories():
    train = pa.table({"age": [1.0, 3.0], "town": ["b", "a"]})
    test = pa.table({"age": [5.0], "town": ["elsewhere"]})
    matrices = encode_tables(train, test, categorical=["town"], numeric=["age"])
    assert matrices.train.tolist() == [[-1, 0, 1], [1, 1, 0]]
    assert matrices.test.tolist() == [[3, 0, 0]]


def test_matrix_shares_a_column_among_rare_categories():
    values = [str(i) for i in range(200)] + ["common"] * 3
    table = pa.table({"code": values})
    encoded = encode_tables(table, table, categorical=["code"], numeric=[]).train
    assert encoded.shape == (203, MOST_CATEGORIES)
    assert (encoded.sum(axis=1) == 1).all()
    assert encoded[:200, -1].sum() > 100


def test_matrix_takes_missing_categories_and_no_columns_at_all():
    table = pa.table({"code": pa.array(["a", None]), "empty": pa.array([1, 2])})
    assert encode_tables(table, table, categorical=["code"], numeric=[]).train.tolist() == [[1, 0], [0, 1]]
    assert encode_tables(table, table, categorical=[], numeric=[]).train.shape == (2, 0)


def test_adult_matrix_is_standardised_and_the_same_object_twice():
    adult = load("adult")
    X_train, X_test = adult.matrix()
    assert X_train.dtype == np.float32
    assert X_train.shape[1] == X_test.shape[1]
    # float32 sums over 32,561 rows of unit variance: rounding stays far below 1e-3.
    assert np.abs(X_train[:, :6].mean(axis=0)).max() < 1e-3
    assert np.abs(X_train[:, :6].std(axis=0) - 1).max() < 1e-3
    assert np.isin(X_train[:, 6:], (0, 1)).all()
    assert adult.matrix() is adult.matrix()


def test_matrix_leaves_identifiers_out():
    X = pa.table({"id": [1, 2, 3, 4], "age": [1, 2, 3, 4]})
    dataset = tiny(X_train=X, X_test=X.slice(0, 2), feature_names=("id", "age"), identifiers=("id",))
    assert dataset.matrix().train.shape == (4, 1)


def test_arrays_in_the_unit_interval_stay_and_others_are_scaled():
    pixels = np.array([[0, 1], [0.5, 0.25]] * 2, np.float32)
    assert np.array_equal(tiny(X_train=pixels).matrix().train, pixels)
    wide = np.array([[0, 2], [0, 4]] * 2, np.float32)
    scaled = tiny(X_train=wide).matrix().train
    assert scaled.tolist() == [[0, -1], [0, 1]] * 2


# -------------------------------------------------------------------------------------------------------- the split


def test_split_is_frozen():
    # The first eight test positions; SplitMix64's finaliser of i + 0x9E37..., computed with Python's whole numbers below.
    chosen = np.flatnonzero(choose_test_rows(np.arange(60), share=0.2)).tolist()

    def word(i: int) -> int:
        full = 2**64
        z = (i + 0x9E3779B97F4A7C15) % full
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % full
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % full
        return z ^ (z >> 31)

    assert chosen == [i for i in range(60) if word(i) < int(0.2 * 2**64)]
    assert labeldp.data.load("digits").y_test.shape == (373,)


def test_split_share_and_ends():
    keys = np.arange(100_000)
    # Deterministic; a fair hash would miss 20,000 by more than 700 with probability 3e-8 (5.5 standard deviations).
    assert abs(int(choose_test_rows(keys, share=0.2).sum()) - 20_000) < 700
    assert not choose_test_rows(keys, share=0.0).any()
