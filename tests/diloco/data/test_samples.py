"""Tokens and samples: the same on every node, whatever was cached."""

from pathlib import Path

import numpy as np
import pytest

from diloco.data.corpus import Corpus
from diloco.data.samples import Samples, Tokens, load_tokens
from diloco.data.tokenizer import load_tokenizer, train_tokenizer
from diloco.genesis import Genesis
from protocol.errors import Code, NodeError
from tests.diloco.small_run import small_genesis


def corpus_of(genesis: Genesis, folder: Path) -> Corpus:
    return Corpus(genesis.files, genesis.sections.data, folder / "members", folder)


def test_every_text_decodes_to_itself() -> None:
    tokenizer = load_tokenizer(train_tokenizer(["some text", "more text"], 260), 260)
    text = "naïve → 数 \x00 \t def f():\n"
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_training_a_tokenizer_twice_gives_the_same_bytes() -> None:
    texts = ["a few words and a few more", "words about words"] * 20
    assert train_tokenizer(texts, 280) == train_tokenizer(texts, 280)


@pytest.mark.parametrize("text", ["{}", "not json", '{"version": "1.0"}'])
def test_a_bad_tokenizer_is_an_error_with_a_code(text: str) -> None:
    with pytest.raises(NodeError) as caught:
        load_tokenizer(text, 300)
    assert caught.value.code is Code.TRN_DATA


def test_a_tokenizer_larger_than_the_embedding_is_refused() -> None:
    with pytest.raises(NodeError, match="for 258 rows"):
        load_tokenizer(train_tokenizer(["some text"] * 9, 265), 258)


def test_cached_tokens_are_the_same_and_a_damaged_cache_is_replaced(tmp_path: Path) -> None:
    genesis = small_genesis(tmp_path)
    made = load_tokens(genesis, corpus_of(genesis, tmp_path), tmp_path)
    (cache,) = tmp_path.glob("tokens-*.bin")
    whole = cache.read_bytes()
    no_files = Corpus(genesis.files, genesis.sections.data, tmp_path / "members")
    cached = load_tokens(genesis, no_files, tmp_path)
    assert np.array_equal(made.train, cached.train)
    assert np.array_equal(made.validation, cached.validation)
    for damaged in (whole[:-1], whole[:-1] + b"\xff", b"", whole[:20]):
        cache.write_bytes(damaged)
        with pytest.raises(NodeError):
            load_tokens(genesis, no_files, tmp_path)
        load_tokens(genesis, corpus_of(genesis, tmp_path), tmp_path)
        assert cache.read_bytes() == whole


def test_a_corpus_shorter_than_a_sample_is_refused(tmp_path: Path) -> None:
    genesis = small_genesis(tmp_path, model={"context": 100_000})
    with pytest.raises(NodeError, match="fewer than one sample"):
        load_tokens(genesis, corpus_of(genesis, tmp_path), tmp_path)


def test_a_position_says_which_sample_and_an_epoch_has_each_once() -> None:
    tokens = Tokens(np.arange(1001, dtype=np.uint16), np.arange(500, dtype=np.uint16))
    samples = Samples(tokens, context=10, seed=3)
    assert samples.count == 100
    first = [int(samples.sample(position)[0]) for position in range(100)]
    second = [int(samples.sample(position)[0]) for position in range(100, 200)]
    assert sorted(first) == sorted(second) == list(range(0, 1000, 10))
    assert first != second
    again = Samples(tokens, context=10, seed=3)
    assert [int(again.sample(position)[0]) for position in range(199, 99, -1)] == second[::-1]
    assert [int(Samples(tokens, 10, 4).sample(position)[0]) for position in range(100)] != first
    assert samples.sample(7).tolist() == list(range(first[7], first[7] + 11))


def test_the_order_of_samples_never_changes_between_versions() -> None:
    samples = Samples(Tokens(np.arange(81, dtype=np.uint16), np.arange(20, dtype=np.uint16)), 8, seed=1)
    order = [int(samples.sample(position)[0]) // 8 for position in range(10)]
    assert order == ORDER_OF_SEED_1


def test_validation_samples_are_spread_and_bounded_by_what_there_is() -> None:
    samples = Samples(Tokens(np.arange(81, dtype=np.uint16), np.arange(101, dtype=np.uint16)), 10, seed=1)
    assert samples.validation(5)[:, 0].tolist() == [0, 20, 40, 60, 80]
    assert samples.validation(99).shape == (10, 11)


ORDER_OF_SEED_1 = [5, 0, 2, 6, 9, 1, 8, 7, 3, 4]
