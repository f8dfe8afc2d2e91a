"""Files of a run: chosen by the seed, split by file, read only when their bytes are the named ones."""

from pathlib import Path

import pytest

from diloco.config import DataSection
from diloco.data.corpus import LARGEST_PIECE, TOPICS, Corpus, choose_files, documents_of, standard_library
from diloco.genesis import CorpusFile
from protocol.errors import Code, NodeError
from tests.diloco.small_run import write_text

TEXT = DataSection(source="text", paths=("text",), max_bytes=20_000)


def test_the_standard_library_gives_topics_and_sources_and_holds_whole_files_out(tmp_path: Path) -> None:
    section = DataSection(max_bytes=1_500_000)
    files = choose_files(section, 1, tmp_path)
    assert files == choose_files(section, 1, tmp_path)
    assert files[0].name == TOPICS and files[0].part == "train"
    total = sum(file.size for file in files)
    assert 1_500_000 <= total < 1_800_000
    held_out = sum(file.size for file in files if file.part == "validation")
    assert 0.02 * total < held_out < 0.1 * total


def test_another_seed_takes_other_files(tmp_path: Path) -> None:
    section = DataSection(max_bytes=900_000)
    first, second = ({file.name for file in choose_files(section, seed, tmp_path)} for seed in (1, 2))
    assert first != second


def test_topics_are_read_as_a_literal() -> None:
    data = b"evil = exit(1)\ntopics = {'a': 'first ' 'text', 'b': 'second'}\n"
    assert list(documents_of(TOPICS, data)) == ["first text", "second"]
    assert list(documents_of(TOPICS, b"not python (")) == ["not python ("]
    assert len(list(documents_of(TOPICS, (standard_library() / TOPICS).read_bytes()))) > 50


def test_long_files_come_in_bounded_pieces_that_add_up() -> None:
    text = "a line of text\n" * 20_000 + "x" * 200_000
    pieces = list(documents_of("long.txt", text.encode()))
    assert "".join(pieces) == text
    assert max(map(len, pieces)) <= LARGEST_PIECE
    assert pieces[0].endswith("\n")


def test_a_changed_file_is_missing_and_its_bytes_may_come_from_a_member(tmp_path: Path) -> None:
    write_text(tmp_path)
    files = choose_files(TEXT, 1, tmp_path)
    corpus = Corpus(files, TEXT, tmp_path / "members", tmp_path)
    assert corpus.missing() == ()
    original = corpus.read(files[0])
    (tmp_path / files[0].name).write_bytes(original[:-1] + b"!")
    assert corpus.missing() == (files[0],)
    with pytest.raises(NodeError) as caught:
        corpus.read(files[0])
    assert caught.value.code is Code.TRN_DATA
    with pytest.raises(NodeError, match="not what the genesis names"):
        corpus.accept(files[0], original[:-1] + b"!")
    assert corpus.missing() == (files[0],)
    corpus.accept(files[0], original)
    assert corpus.missing() == () and corpus.read(files[0]) == original


def test_a_node_without_the_text_folder_misses_all_of_it(tmp_path: Path) -> None:
    write_text(tmp_path)
    files = choose_files(TEXT, 1, tmp_path)
    assert Corpus(files, TEXT, tmp_path / "members").missing() == files


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "text/../../secret"])
def test_a_genesis_cannot_name_a_file_outside(tmp_path: Path, name: str) -> None:
    file = CorpusFile(name=name, size=1, digest="0" * 64, part="train")
    with pytest.raises(NodeError, match="leaves its folder"):
        Corpus((file,), TEXT, tmp_path / "members", tmp_path).read(file)


def test_a_corpus_of_one_file_is_refused_and_a_missing_path_named(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("text")
    with pytest.raises(NodeError, match="at least two"):
        choose_files(DataSection(source="text", paths=("one.txt",)), 1, tmp_path)
    with pytest.raises(NodeError, match=r"none\.txt"):
        choose_files(DataSection(source="text", paths=("none.txt",)), 1, tmp_path)


def test_text_outside_of_the_run_files_folder_is_refused(tmp_path: Path) -> None:
    write_text(tmp_path)
    (tmp_path / "run").mkdir()
    with pytest.raises(NodeError, match="outside"):
        choose_files(DataSection(source="text", paths=("../text",)), 1, tmp_path / "run")
