"""An option that would do nothing is refused, and the message says which one, why, and what to do."""

from __future__ import annotations

import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.conftest import find_command

import labeldp
from labeldp.cli.given import given_options
from labeldp.engines import privatize_table
from labeldp.errors import LabelDPError
from labeldp.learn import save_model

#: The part of a line that stands in front of each option, by what makes the option idle.
TRAIN = "train release --to m.skops"
NUMBERS = "train numbers --to m.skops"
OWNER = "train people.parquet -l income -e 1 --to m.skops"
PRIVATIZE = "privatize people.parquet -l income -e 1 --to out"
EVALUATE = "evaluate m.skops"
PATE = "pate people.parquet -l income --public test.csv -e 1 --to m.skops"
SEVERAL = "pate people.parquet -l a -l b --public test.csv -e 1 --to m.skops"
#: How text is written, and how its labels are.
READING = (
    "--sep ;",
    "--decimal ,",
    "--quote '",
    "--encoding utf-8",
    "--columns a",
    "--header",
    "--type a=bool",
    "--na x",
)
TIDYING = ("--strip", "--merge yes=YES")
CLASSES = ("--classes a,b", "--class a", "--classes-file f.txt")
RANGE = ("--bounds 0,1", "--counts 0..4")
PAID = ("--ledger l", "--budget 2", "--label-set x", "--seed 1", "--person id")
OF_OWNER = (
    *(
        "--label income",
        "-l income",
        "--epsilon 0.1",
        "-e 0.1",
        "--trust no-one",
        "--stages 2",
        "--prior none",
        "--clusters 3",
    ),
    *("--save-release kept", "--missing drop", "--row-ids id", "--accept-large-epsilon", "--outside clip"),
)

#: (the line, the options that do nothing on it, words of the message).
IDLE = [
    (TRAIN, (*OF_OWNER, *READING, *TIDYING, *CLASSES, *RANGE, *PAID), "its labels are randomized already"),
    (NUMBERS, ("--search", "--search alpha=1,2", "--correction auto"), "left out for labels that are numbers"),
    (f"{OWNER} --bounds 0,1", (*TIDYING, *CLASSES), "Numbers have bounds, classes have a list"),
    (
        f"{OWNER} --bounds 0,1",
        ("--trust curator", "--prior none", "--clusters 3"),
        "left out for labels that are numbers",
    ),
    (OWNER, ("--outside clip", "--outside refuse"), "add one of the two"),
    (OWNER, ("--clusters 3",), "Add --prior cluster"),
    (OWNER, READING, "left out for people.parquet"),
    (PRIVATIZE, ("--outside clip", "--outside refuse"), "add one of the two"),
    (PRIVATIZE, ("--scheduler tls://a:1", "--workers 2", "--insecure-scheduler"), "add --engine dask"),
    (f"{PRIVATIZE} --engine dask --workers 1", ("--insecure-scheduler",), "without --scheduler"),
    (
        f"{PRIVATIZE} --counts 0..4",
        (*TIDYING, *CLASSES, "--for labels", "--groups g"),
        "left out for labels that are numbers",
    ),
    (PRIVATIZE, ("--budget 2", "--mechanism-option k=2", "--prior-epsilon 0.1", "--discard"), ""),
    (PRIVATIZE, READING, "left out for people.parquet"),
    ("look test.csv", ("--show-raw", "--outside clip", *TIDYING, *RANGE), "left out without --label"),
    ("look test.csv -l income --show-raw", ("--outside refuse",), "add one of the two"),
    ("look test.csv -l age --show-raw --bounds 0,1", TIDYING, "left out for labels that are numbers"),
    ("look people.parquet", READING, "this format says itself"),
    (
        "look lines.jsonl",
        [one for one in READING if "enc" not in one and "type" not in one],
        "left out for lines.jsonl",
    ),
    ("plan --classes 2", ("--label income", *READING), "left out without a table"),
    ("plan people.parquet --classes 2", READING, "left out for people.parquet"),
    ("plan people.parquet -l income --read-classes", ("--classes 2",), "left out with --read-classes"),
    (
        "plan --bounds 0,1",
        ("--classes 2", "--read-classes", "--prior-accuracy 0.9", "--cluster-size 9"),
        "left out for labels that are numbers",
    ),
    (
        f"{EVALUATE} --release release",
        ("--label a", "--positive a", *TIDYING, *READING, *PAID),
        "Released labels|released features",
    ),
    (
        f"{EVALUATE} test.csv -l income --public-labels",
        ("--budget 2", "--person id", "--seed 1"),
        "left out with --public-labels",
    ),
    (f"{EVALUATE} test.csv -l income --public-labels", ("--label-set x",), "left out without --ledger"),
    (
        "evaluate numbers.skops people.parquet -l age --public-labels",
        (*TIDYING, "--positive high"),
        "left out for labels that are numbers",
    ),
    ("audit numbers --labels people.parquet -l age", TIDYING, "left out for labels that are numbers"),
    ("ledger l", ("--delta 1e-6",), "left out without --set-budget"),
    (PATE, ("--budget-delta 1e-6",), "left out without --budget"),
    (PATE, ("--tau 2",), "belongs to --aggregation pate-tau"),
    (
        f"{PATE} --aggregation gnmax",
        ("--threshold 0.5", "--most-answers 3"),
        "belongs to --aggregation confident-gnmax",
    ),
    (SEVERAL, (*TIDYING, *CLASSES, "--missing drop", "--threshold 0.5", "--most-answers 3"), "It is for one label"),
    (f"{SEVERAL} --aggregation pate", ("--tau 2",), "belongs to --aggregation pate-tau"),
    ("audit release", ("--draws 9", "--jobs 2"), "left out for a release"),
    (
        "audit release",
        ("--confidence 0.9", "--seed 1", "--missing drop", *TIDYING, *READING),
        "left out without --labels",
    ),
    (
        "audit idle_subjects:honest",
        ("--ledger l", "--labels people.parquet", *TIDYING, *READING),
        "left out for MODULE:FUNCTION",
    ),
    ("audit idle_subjects:trained", ("--draws 9",), "left out for a pipeline"),
]

SUBJECTS = """
import numpy as np
from labeldp.audit import Pipeline, Randomizer
def honest():
    return Randomizer(run=lambda labels, rng: labels, n_classes=2, claimed=1.0)
def trained():
    return Pipeline(train=lambda labels: np.zeros((len(labels), 2)), labels=np.zeros(8, int), n_classes=2, claimed=1.0)
"""


@pytest.fixture(scope="module")
def releases(tmp_path_factory):
    """A release of classes and one of numbers, made once."""
    place = tmp_path_factory.mktemp("releases")
    labels = labeldp.RandomizedResponse(1.0, n_classes=2)
    labeldp.privatize(["a", "b", "a", "b"], labels, rng=1).save(place / "release")  # any seed: no answer is looked at
    labeldp.privatize([0.0, 1.0, 1.0, 0.5], labeldp.UnbiasedResponse(1.0, bounds=(0, 1)), rng=1).save(place / "numbers")
    numbers = labeldp.LabelPrivateRegressor(epsilon=1.0, bounds=(0, 100), random_state=1)
    save_model(numbers.fit(np.arange(20.0)[:, None], np.arange(20.0)), place / "numbers.skops")
    return place


@pytest.mark.parametrize(
    ("line", "options", "words"), IDLE, ids=[f"{number} {line[:40]}" for number, (line, _, _) in enumerate(IDLE)]
)
def test_an_option_that_would_do_nothing_is_refused(refused, folder, releases, monkeypatch, line, options, words):
    """Nothing is made, charged or read further, and the one line on stderr names the option."""
    import re

    for name in ("release", "numbers"):
        shutil.copytree(releases / name, folder / name)
    shutil.copy(releases / "numbers.skops", folder)
    (folder / "idle_subjects.py").write_text(SUBJECTS)
    (folder / "lines.jsonl").write_text('{"a": 1}\n{"a": 2}\n')
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr("sys.dont_write_bytecode", True)  # of the module: what is looked for is what the command leaves
    long = {"-l": "--label", "-e": "--epsilon"}
    for option in options:
        told = refused(f"{line} {option}")
        name = option.split()[0]
        named = {"--mechanism-option": "--mechanism", "--prior-epsilon": "prior_epsilon"}.get(
            name, long.get(name, name)
        )
        assert named in told, (option, told)
        assert re.search(words, told), (option, told)


def test_every_name_in_a_rule_is_an_option_of_its_command():
    """A rule about an option that was renamed would refuse nothing."""
    from labeldp.cli import audit, evaluate, pate, privatize, tables, train

    groups = (tables.Reading, tables.Tidying, tables.LabelRules, tables.NumberRange, tables.NumberRules)
    known = {
        name: {text for option in command.params for text in option.opts}
        for name, command in find_command().commands.items()
    }
    rules = {
        "train": (*train.OF_A_RELEASE, *train.FOR_CLASSES, *tables.options_of(*groups)),
        "privatize": (*privatize.DASK_OPTIONS, *tables.options_of(*groups)),
        "evaluate": (*evaluate.PAYING, *tables.options_of(tables.Reading, tables.Tidying)),
        "pate": (*pate.TESTED, *tables.options_of(tables.Reading, tables.LabelRules)),
        "audit": audit.OF_LABELS,
    }
    for command, names in rules.items():
        assert set(names) <= known[command], command


def test_options_are_those_of_the_line_that_is_at_work(run, folder):
    """The line of a command that has ended is forgotten."""
    run("plan --classes 2 --epsilon 1")
    assert given_options() == ()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"outside": "refuse"}, "`outside` must be left out for labels that are classes"),
        ({"insecure": True}, "`insecure` must be left out"),
        ({"insecure": True, "engine": "dask", "workers": 1}, "about a client or a scheduler"),
    ],
)
def test_privatize_table_refuses_what_would_do_nothing(folder, options, words):
    with pytest.raises(LabelDPError, match=words):
        privatize_table("people.parquet", label="income", to="out", epsilon=1.0, **options)
    assert not (folder / "out").exists()


def test_one_table_of_two_may_be_text(run, folder):
    """What is said about text is for the one that is text, and the other is read as it is."""
    (folder / "items.csv").write_text("product;more\np;1\nq;2\n")
    pq.write_table(pa.table({"product": ["p", "q"], "buyers": [900, 5]}), folder / "sales.parquet")
    run(
        "top-k sales.parquet --item product --count buyers --candidates items.csv --sep ; --k 1 -e 9 -d 1e-6 --neighbours replace"
    )


@pytest.mark.parametrize(
    "name", ["sep", "decimal", "quote", "columns", "missing_values", "header", "encoding", "types"]
)
def test_the_library_refuses_them_too(folder, name):
    """Before: `open_table("people.parquet", sep=";")` read the table as if nothing had been said."""
    value = {
        "columns": ["a"],
        "missing_values": ["x"],
        "header": True,
        "encoding": "utf-8",
        "types": {"a": "bool"},
    }.get(name, ",")
    with pytest.raises(LabelDPError, match=rf"`{name}` must be left out for people\.parquet"):
        labeldp.data.open_table(folder / "people.parquet", **{name: value})
