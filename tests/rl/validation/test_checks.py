from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.errors import Code
from protocol.units import Digest, RunId
from rl.rollouts.record import Provenance, Rollout
from rl.validation.checks import check
from rl.validation.terms import Lease, Terms
from rl.validation.verdict import Finding
from rl.work.window import in_window
from tests.rl.rollouts.making import BEN, groups, provenance, rollout

FILE = provenance()
TERMS = Terms(
    run=FILE.run,
    environment=FILE.environment,
    environment_version=FILE.environment_version,
    tokenizer=FILE.tokenizer,
    sampling=replace(FILE.sampling, max_tokens=40, stop=(), eos=(0,)),
    vocab=256,
    context=64,
    group_size=2,
    turns=4,
    window=2,
)
FILE = replace(FILE, sampling=TERMS.sampling)
LEASE = Lease(FILE.worker, FILE.trainer, 0, 3, FILE.weights, FILE.beacon, (7, 8), 4)


def texts(tokens: Any) -> str:
    return "".join(chr(token) for token in tokens)


def codes(held: Any = None, file: Provenance = FILE, terms: Terms = TERMS, lease: Lease = LEASE) -> set[Code]:
    return {finding.code for finding in found(held, file, terms, lease)}


def found(
    held: Any = None, file: Provenance = FILE, terms: Terms = TERMS, lease: Lease = LEASE
) -> list[Finding]:
    return check(file, clean() if held is None else held, terms, lease, texts)


def clean() -> Any:
    """Rollouts that end by length and hold no end token."""
    return tuple(
        replace(group, rollouts=tuple(replace(each, tokens=each.tokens | 1) for each in group.rollouts))
        for group in groups(7, 8)
    )


def with_first(**changes: Any) -> Any:
    first, second = clean()
    return (replace(first, rollouts=(replace(first.rollouts[0], **changes), first.rollouts[1])), second)


def test_a_file_as_it_should_be_has_nothing_wrong() -> None:
    assert found() == []


@pytest.mark.parametrize(
    "changes",
    [
        {"schema": 2}, {"run": RunId("cd" * 32)}, {"worker": BEN.peer_id}, {"trainer": BEN.peer_id}, {"counter": 1},
        {"version": 4}, {"weights": Digest(bytes(32))}, {"beacon": Digest(bytes(32))}, {"environment": "other"},
        {"environment_version": "2"}, {"tokenizer": Digest(bytes(32))},
        {"sampling": replace(TERMS.sampling, temperature=0.5)},
    ],
    ids=lambda changes: next(iter(changes)),
)  # fmt: skip
def test_every_field_of_the_provenance_is_held_against_run_and_lease(changes: dict[str, Any]) -> None:
    assert codes(file=replace(FILE, **changes)) == {Code.RL_PROVENANCE}


@pytest.mark.failure_mode(45)
@given(st.integers(-5, 50), st.integers(-5, 50), st.integers(0, 10))
def test_a_version_is_in_the_window_if_it_is_neither_newer_than_the_newest_nor_too_many_steps_older(
    version: int, newest: int, window: int
) -> None:
    assert in_window(version, newest, window) == (0 <= newest - version <= window)


@pytest.mark.failure_mode(45)
@pytest.mark.parametrize(("newest", "inside"), [(2, False), (3, True), (4, True), (5, True), (6, False)])
def test_the_file_of_a_version_at_the_edge_of_the_window_is_taken_and_one_beyond_is_not(
    newest: int, inside: bool
) -> None:
    assert (Code.RL_WINDOW in codes(lease=replace(LEASE, newest=newest))) is not inside


@pytest.mark.parametrize("positions", [(7,), (7, 8, 9), (8, 7), (7, 9), (), (8,)], ids=str)
def test_groups_are_those_of_the_lease_in_its_order(positions: tuple[int, ...]) -> None:
    assert codes(lease=replace(LEASE, positions=positions)) == {Code.RL_GROUP}


def test_a_group_is_whole_and_in_order() -> None:
    first, second = clean()
    for rollouts in (first.rollouts[:1], first.rollouts[::-1], (*first.rollouts, first.rollouts[0]), ()):
        assert codes((replace(first, rollouts=rollouts), second)) == {Code.RL_GROUP}


@pytest.mark.parametrize("token", [-1, 256, 2**31 - 1, -(2**31)])
def test_a_token_outside_of_the_vocabulary_is_refused(token: int) -> None:
    tokens = clean()[0].rollouts[0].tokens.copy()
    tokens[9] = token
    assert codes(with_first(tokens=tokens)) == {Code.RL_TOKENS}


def test_an_empty_completion_is_refused() -> None:
    first = rollout(7, 0, sampled=0)
    assert Code.RL_LENGTH in codes(with_first(**vars(first)))


def test_a_rollout_without_a_prompt_or_without_anything_is_refused() -> None:
    assert codes(with_first(**vars(rollout(7, 0, prompt=0)))) == {Code.RL_TOKENS}
    assert Code.RL_LENGTH in codes(with_first(**vars(rollout(7, 0, prompt=0, sampled=0))))


def test_a_million_token_completion_is_refused_without_a_look_at_each_token() -> None:
    assert codes(with_first(**vars(rollout(7, 0, sampled=1_000_000)))) == {Code.RL_LENGTH}


def test_lengths_are_exact() -> None:
    assert codes(
        terms=replace(TERMS, sampling=replace(TERMS.sampling, max_tokens=39)),
        file=replace(FILE, sampling=replace(TERMS.sampling, max_tokens=39)),
    ) == {Code.RL_LENGTH}
    assert codes(terms=replace(TERMS, context=45)) == set()
    assert codes(terms=replace(TERMS, context=44)) == {Code.RL_LENGTH}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"proofs": ()}, Code.RL_PROOF_FORM),
        ({"proofs": (b"x",)}, Code.RL_PROOF_FORM),
        ({"proofs": (b"x", b"")}, Code.RL_PROOF_FORM),
        ({"proofs": (b"x", b"y" * 259)}, Code.RL_PROOF_FORM),
        ({"proofs": (b"x", b"y", b"z"), "proof_versions": (3, 3, 3)}, Code.RL_PROOF_FORM),
        ({"proof_versions": (3,)}, Code.RL_PROOF_FORM),
        ({"proof_versions": (3, 4)}, Code.RL_PROOF_FORM),  # the tokens say 3
        ({"proof_versions": (4, 3)}, Code.RL_PROOF_FORM),
        ({"proof_versions": (2, 3)}, Code.RL_WINDOW),
        ({"proof_versions": (3, 5)}, Code.RL_WINDOW),
    ],
    ids=str,
)
def test_proofs_have_number_length_and_versions(changes: dict[str, Any], code: Code) -> None:
    assert code in codes(with_first(**changes))


def test_weights_may_change_at_most_as_often_as_the_terms_say() -> None:
    long = replace(TERMS, context=500, sampling=replace(TERMS.sampling, max_tokens=160))
    each = rollout(7, 0, sampled=160)
    versions = (3, 4, 5, 5, 6)
    of_tokens = np.concatenate([np.full(5, -1), np.repeat(versions, 32)]).astype(np.int32)
    held = with_first(
        **vars(replace(each, tokens=each.tokens | 1, versions=of_tokens, proof_versions=versions))
    )
    held = (replace(held[0], rollouts=(held[0].rollouts[0],)),)
    lease = replace(LEASE, positions=(7,), newest=6)
    file = replace(FILE, sampling=long.sampling)
    one = replace(long, group_size=1, window=3)
    assert codes(held, file, replace(one, refills=3), lease) == set()
    assert codes(held, file, replace(one, refills=2), lease) == {Code.RL_PROOF_FORM}


@pytest.mark.failure_mode(50)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e-3])
def test_a_log_probability_that_is_none_is_refused(value: float) -> None:
    logprobs = clean()[0].rollouts[0].logprobs.copy()
    logprobs[10] = value
    assert codes(with_first(logprobs=logprobs)) == {Code.RL_LOGPROBS}


@pytest.mark.parametrize("value", [np.nan, -0.5])
def test_a_token_that_was_not_sampled_has_no_log_probability(value: float) -> None:
    logprobs = clean()[0].rollouts[0].logprobs.copy()
    logprobs[0] = value
    assert codes(with_first(logprobs=logprobs)) == {Code.RL_LOGPROBS}


def turns_of(*parts: tuple[bool, list[int]], finish: str, terms: Terms = TERMS) -> set[Code]:
    """What is wrong with a transcript of these parts."""
    tokens = np.array([token for _, some in parts for token in some], np.int32)
    mask = np.array([said for said, some in parts for _ in some])
    shape = rollout(7, 0, prompt=len(parts[0][1]), sampled=len(tokens) - len(parts[0][1]))
    end = len(mask) - int(mask[::-1].argmax())
    chunks = -(-(end - shape.prompt) // 32)
    held = replace(
        shape,
        tokens=tokens,
        sampled=mask,
        logprobs=np.where(mask, shape.logprobs, 0).astype(np.float32),
        versions=np.where(mask, 3, -1).astype(np.int32),
        proofs=(b"p",) * chunks,
        proof_versions=(3,) * chunks,
        finish=finish,
    )
    (group,) = groups(7)
    terms = replace(terms, group_size=1)
    file = replace(FILE, sampling=terms.sampling)
    return codes((replace(group, rollouts=(held,)),), file, terms, replace(LEASE, positions=(7,)))


PROMPT = (False, [5, 5])
STOPS = replace(TERMS, sampling=replace(TERMS.sampling, stop=("ab",)))


@pytest.mark.parametrize(
    ("parts", "finish", "right"),
    [
        ([(True, [9, 0])], "eos", True),
        ([(True, [0])], "eos", True),
        ([(True, [9, 0])], "over", True),
        ([(True, [9, 0])], "length", False),
        ([(True, [9, 9])], "eos", False),
        ([(True, [9, 9])], "length", False),
        ([(True, [9, 9])], "over", False),
        ([(True, [9, 0, 9])], "eos", False),
        ([(True, [9] * 40)], "length", True),
        ([(True, [9] * 39)], "length", False),
        ([(True, [9] * 40)], "over", False),
        ([(True, [9] * 39 + [0])], "eos", True),
        ([(True, [9] * 39 + [0])], "length", False),
        ([(True, [9, 0]), (False, [7]), (True, [9, 0])], "eos", True),
        ([(True, [9, 0]), (False, [7])], "over", True),
        ([(True, [9, 9]), (False, [7]), (True, [9, 0])], "eos", False),
        ([(True, [9] * 38 + [0]), (False, [7]), (True, [9])], "length", True),
        ([(True, [9] * 37 + [0]), (False, [7]), (True, [9])], "length", False),
        ([(True, [9] * 3 + [0]), (False, [7] * 57), (True, [9])], "length", True),  # the context is full
    ],
    ids=str,
)  # fmt: skip
def test_a_rollout_ends_where_something_ends_it_and_nowhere_else(
    parts: list[tuple[bool, list[int]]], finish: str, right: bool
) -> None:
    assert turns_of(PROMPT, *parts, finish=finish) == (set() if right else {Code.RL_TERMINATION})


@pytest.mark.parametrize(
    ("text", "finish", "right"),
    [
        ("xab", "stop", True),
        ("xabx", "stop", False),
        ("xa", "stop", False),
        ("xab", "eos", False),
        ("ab", "stop", True),
    ],
)
def test_a_stop_text_ends_a_turn_with_the_token_that_completes_it(
    text: str, finish: str, right: bool
) -> None:
    said = (True, [ord(letter) for letter in text])
    assert turns_of(PROMPT, said, finish=finish, terms=STOPS) == (set() if right else {Code.RL_TERMINATION})


def test_a_stop_text_counts_over_turns_apart() -> None:
    parts = [(True, [120, 0]), (False, [98]), (True, [97, 0])]
    assert turns_of(PROMPT, *parts, finish="eos", terms=STOPS) == set()


numbers = st.sampled_from([-(2**31), -1, 0, 1, 3, 255, 256, 2**31 - 1])
floats = st.sampled_from([np.nan, np.inf, -np.inf, -1.0, 0.0, 1.0])


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_rollout_whatsoever_makes_the_checks_fail(data: st.DataObject) -> None:
    length = data.draw(st.integers(0, 70))

    def drawn(values: Any, dtype: Callable[..., Any]) -> Any:
        return np.array(data.draw(st.lists(values, min_size=length, max_size=length)), dtype)

    chunks = data.draw(st.integers(0, 3))
    wild = Rollout(
        position=7,
        index=data.draw(st.integers(0, 3)),
        tokens=drawn(numbers, np.int32),
        sampled=drawn(st.booleans(), np.bool_),
        logprobs=drawn(floats, np.float32),
        versions=drawn(numbers, np.int32),
        proofs=tuple(data.draw(st.lists(st.sampled_from([b"", b"x"]), min_size=chunks, max_size=chunks))),
        proof_versions=tuple(data.draw(st.lists(numbers, min_size=chunks, max_size=chunks))),
        reward=data.draw(floats),
        finish=data.draw(st.sampled_from(["eos", "stop", "length", "over"])),
    )
    first, second = clean()
    for terms in (TERMS, STOPS):
        for finding in found((replace(first, rollouts=(wild, first.rollouts[1])), second), terms=terms):
            assert finding.sentence
