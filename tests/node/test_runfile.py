from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.runfile import MAX_BYTES, RunFile, load, parse, rate_text
from node.runfile_lines import key_lines
from node.runfile_problems import RunFileError
from protocol.errors import Code, NodeError
from protocol.units import Bytes, bandwidth

PEER = "12D3KooWGRUnf6sDzZ3jHwqXEqSBhVYXFYvUVaTBVpCkZLEqbTDx"


def problems(text: str) -> list[str]:
    with pytest.raises(RunFileError) as caught:
        parse(text, "RUN.toml")
    return [problem.text("RUN.toml") for problem in caught.value.problems]


def test_three_lines_are_a_run_file() -> None:
    runfile = parse('[run]\nname = "mine"\nrounds = 100\n')
    assert (runfile.run.name, runfile.run.rounds) == ("mine", 100)
    assert runfile.model == RunFile().model


def test_an_empty_file_has_all_defaults() -> None:
    assert parse("").model_dump() == RunFile().model_dump()


def test_the_part_that_describes_the_run_is_free_of_what_is_local() -> None:
    runfile = parse('[run]\nseed = 7\n[limits]\nupload = "20 Mb/s"\n')
    assert runfile.sections().run.seed == 7
    assert not hasattr(runfile.sections(), "limits")


def test_an_unknown_key_is_named_with_file_line_and_what_was_meant() -> None:
    (problem,) = problems("[inner]\n\n# rate\nlearning_rat = 1\nbatc = 8\n")[1:]
    assert problem.startswith(
        "RUN.toml, line 5: `inner.batc` is not a known key - did you mean `inner.batch`?"
    )
    assert "accumulation" in problem


def test_a_key_in_the_wrong_section_is_led_to_the_right_one() -> None:
    assert "did you mean `limits.upload`?" in problems('[network]\nupload = "20 Mb/s"\n')[0]
    assert "did you mean `run.name`?" in problems('name = "mine"\n')[0]


def test_a_key_like_no_other_gets_the_list_of_keys() -> None:
    (problem,) = problems("[outer]\ncolour = 3\n")
    assert problem == "RUN.toml, line 2: `outer.colour` is not a known key: [outer] has lr, momentum."


def test_an_unknown_section_is_an_unknown_key() -> None:
    assert "did you mean `deadline`?" in problems('[deadlines]\nattempt = "5 s"\n')[0]


def test_a_plain_value_in_place_of_a_section_says_how_to_write_one() -> None:
    assert problems("run = 3\n") == [
        "RUN.toml, line 1: `run` must be a section: write [run] and its keys below it."
    ]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('[inner]\nprecision = "fp8"\n', '`inner.precision` must be "fp32" or "bf16", not "fp8"'),
        ("[inner]\nlr = -1\n", "`inner.lr` must be a number from 0 to 1, not -1"),
        ("[inner]\nlr = nan\n", "`inner.lr` must be a number from 0 to 1, not NaN"),
        ("[run]\nrounds = 0\n", "`run.rounds` must be a whole number from 1 to 10,000,000, not 0"),
        ('[run]\nrounds = "8"\n', '`run.rounds` must be a whole number from 1 to 10,000,000, not "8"'),
        (
            "[round]\nchunk = 300\n",
            "`round.chunk` must be a whole number from 256 to 1,048,576, a multiple of 256, not 300",
        ),
        ("[model]\ntie = 1\n", "`model.tie` must be true or false, not 1"),
        (
            "[inner]\nbetas = [\n 0.9,\n 1.5]\n",
            "`inner.betas[1]` must be a number from 0 and below 1, not 1.5",
        ),
        (
            "[deadline]\nsilence = 10\n",
            '`deadline.silence` must be a duration such as "5 s", "250 ms" or "2 min", not 10',
        ),
        (
            '[deadline]\nsilence = "1 eon"\n',
            '`deadline.silence` must be a duration such as "5 s", "250 ms" or "2 min"',
        ),
        (
            '[limits]\nupload = "fast"\n',
            '`limits.upload` must be a rate such as "20 Mb/s" or "2.5 MB/s", or "unlimited"',
        ),
        (
            "[limits]\nmemory = 5\n",
            '`limits.memory` must be a size such as "4 GiB" or "500 MB", or "unlimited", not 5',
        ),
        ("[network]\nport = 70000\n", "`network.port` must be a whole number from 0 to 65,535, not 70000"),
        (
            '[network]\njoin = ["there"]\n',
            '`network.join[0]` must be an address such as "/ip4/203.0.113.7/tcp/4001/p2p/',
        ),
        (
            '[node]\nroles = ["traner"]\n',
            '`node.roles[0]` must be "trainer", "coordinator", "rollout" or "validator", not "traner"',
        ),
        (
            '[admission]\nallow = ["x"]\n',
            '`admission.allow[0]` must be a peer id that begins with 12D3KooW, not "x"',
        ),
        (
            '[run]\nname = "My Run"\n',
            "`run.name` must be text of at most 63 lower-case letters, digits and dashes",
        ),
    ],
)
def test_a_bad_value_is_named_with_what_is_allowed(text: str, sentence: str) -> None:
    (problem,) = problems(text)
    assert problem.startswith(f"RUN.toml, line 2: {sentence}")


def test_values_that_do_not_fit_each_other_are_reported_on_a_line_that_has_one_of_them() -> None:
    (problem,) = problems("[model]\nlayers = 2\nhidden = 190\n")
    assert problem.startswith("RUN.toml, line 3: [model] hidden (190) must be")
    (problem,) = problems("[round]\nstart_members = 20\n[admission]\nseats = 3\n")
    assert problem.startswith("RUN.toml, line 2: round.start_members must not exceed")


def test_all_that_is_wrong_is_said_at_once_in_the_order_of_the_file() -> None:
    lines = [
        problem.split(":")[0]
        for problem in problems('[run]\nrounds = 0\nnam = "x"\n[outer]\nlr = "big"\nmomentum = 2\n')
    ]
    assert lines == [f"RUN.toml, line {line}" for line in (2, 3, 5, 6)]


def test_the_error_itself_is_the_first_problem() -> None:
    with pytest.raises(RunFileError) as caught:
        parse("[run]\nnam = 1\nrounds = 0\n", "RUN.toml")
    assert caught.value.code == Code.CFG_UNKNOWN_KEY
    assert "(1 more)" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("[run]\nname = demo\n", "RUN.toml, line 2, column 8: "),
        ("[run]\n[run]\n", "RUN.toml, line 2, column 5: "),
        ("[inner]\nbetas = [0.9,\n", "RUN.toml, end of document: "),
    ],
)
def test_what_is_not_toml_is_located(text: str, where: str) -> None:
    with pytest.raises(NodeError) as caught:
        parse(text, "RUN.toml")
    assert caught.value.code == Code.CFG_UNREADABLE
    assert caught.value.sentence.startswith(where)


def test_nesting_without_end_is_an_error_like_others() -> None:
    with pytest.raises(NodeError) as caught:
        parse("a = " + "[" * 50_000)
    assert caught.value.code == Code.CFG_UNREADABLE


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "There is no run file"),
        (b"\n\xff\n", "line 2: the text is not UTF-8"),
        (b"#" * (MAX_BYTES + 1), "more than"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "RUN.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(NodeError, match=words) as caught:
        load(path)
    assert caught.value.code == Code.CFG_UNREADABLE


def test_a_folder_is_no_run_file(tmp_path: Path) -> None:
    with pytest.raises(NodeError, match="Is a directory"):
        load(tmp_path)


def test_a_file_of_a_later_version_says_so_and_nothing_else() -> None:
    (problem,) = problems("schema_version = 2\n[run]\nnew_key = 1\n")
    assert problem == "RUN.toml, line 1: `schema_version` is 2; this software reads version 1."


def test_only_what_the_file_gives_can_contradict_the_run() -> None:
    runfile = parse("[run]\nrounds = 5\n[model]\nlayers = 3\n", "RUN.toml")
    error = runfile.mismatch(["model.layers", "model.hidden"])
    assert error is not None
    assert error.code == Code.CFG_GENESIS_MISMATCH
    assert "RUN.toml, line 4: `model.layers`" in error.sentence
    assert "hidden" not in error.sentence
    assert runfile.mismatch(["model.hidden"]) is None
    assert RunFile().mismatch(["model.hidden"]) is None


def test_units_are_understood() -> None:
    runfile = parse('[limits]\nupload = "20 Mb/s"\ndisk = "10 GB"\n[round]\ntime_budget = "2 min"\n')
    assert runfile.limits.upload == Bytes(2_500_000)
    assert isinstance(runfile.limits.upload, Bytes)
    assert runfile.limits.disk == 10**10
    assert runfile.limits.download is None
    assert runfile.round.time_budget == timedelta(minutes=2)


@given(st.integers(min_value=1_000, max_value=10**12))
def test_a_rate_survives_being_written(rate: int) -> None:
    assert bandwidth(rate_text(Bytes(rate))) == pytest.approx(rate, abs=1)


def test_each_key_is_found_on_the_line_where_its_statement_begins() -> None:
    text = "\n".join(
        [
            "# comment",
            "top = 1",
            "[a]",
            'text = """',
            "[not.a.table]",
            'x = 1"""',
            "list = [",
            "  # comment",
            "  1,",
            "]",
            "b.c = 2",
            "inline = { d = 1, e = 2 }",
            '["quoted name"]',
            "f = '#'  # comment",
            "[[many]]",
            "g = 1",
        ]
    )
    lines = key_lines(text)
    assert {key: lines[key] for key in ("top", "a", "a.text", "a.list", "a.b.c", "a.inline.e")} == {
        "top": 2, "a": 3, "a.text": 4, "a.list": 7, "a.b.c": 11, "a.inline.e": 12,
    }  # fmt: skip
    assert lines["quoted name.f"] == 14
    assert lines["many.g"] == 16
    assert "not.a.table" not in lines
