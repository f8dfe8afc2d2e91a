from datetime import timedelta

import pytest

from diloco.config import RunSections
from diloco.data.tokenizer import load_tokenizer, train_tokenizer
from node.runfile import RunFile, RunFileError, parse
from protocol.errors import Code, NodeError
from protocol.identity import Identity
from protocol.units import Digest, RunId
from rl.config import objective_of, rl_of, rules_of, sampling_of, shares_of, terms_of
from rl.environments import Renderer

JUDGE = Identity.ephemeral(b"j" * 32).peer_id
TEXT = f"""
[rl]
environment = "reverse-text"
config = {{ shortest = 2, longest = 4 }}
group_size = 6
window = 1
temperature = 0.7
max_tokens = 24
validators = ["{JUDGE}"]
audited = 0.5
work_within = "30 s"

[objective]
temperature = 0.7
loss = "icepop"

[round]
inner_steps = 2

[inner]
batch = 16
"""


def test_a_run_file_says_it_and_the_genesis_carries_it_as_it_is() -> None:
    written = parse(TEXT)
    carried = RunSections.model_validate_json(written.sections().model_dump_json())
    assert rl_of(carried) == written.rl and objective_of(carried) == written.objective
    assert carried.tokens_per_sample == 6 * carried.model.context
    rules = rules_of(carried)
    assert (rules.lease_size, rules.window, rules.group_size) == (32, 1, 6)
    assert rules.work_within == timedelta(seconds=30)
    assert shares_of(written.rl).established == 0.5


def test_what_is_said_of_sampling_reaches_engines_and_validators_alike() -> None:
    sections = parse(TEXT).sections()
    renderer = Renderer(load_tokenizer(train_tokenizer([], 260), 260))
    sampling = sampling_of(rl_of(sections), renderer)
    terms = terms_of(RunId("run"), sections, renderer, "1", Digest(b"t" * 32))
    assert sampling == terms.sampling
    assert (sampling.temperature, sampling.max_tokens, sampling.eos) == (0.7, 24, (renderer.end,))
    assert (terms.group_size, terms.window, terms.environment) == (6, 1, "reverse-text")


def test_a_run_that_learns_from_text_has_nothing_of_it() -> None:
    sections = RunFile().sections()
    assert sections.rl == {} and sections.objective == {} and not rl_of(sections).present
    assert sections.tokens_per_sample == sections.model.context


def test_two_temperatures_that_differ_are_refused() -> None:
    with pytest.raises(RunFileError, match="temperature"):
        parse(TEXT.replace("temperature = 0.7\nloss", "temperature = 1.0\nloss"))


@pytest.mark.failure_mode(50)
@pytest.mark.parametrize(("name", "value"), [("top_p", 0.9), ("top_k", 40)])
def test_what_rollouts_are_cut_to_is_what_the_loss_is_of(name: str, value: float) -> None:
    sampled = TEXT.replace("[rl]\n", f"[rl]\n{name} = {value}\n")
    with pytest.raises(RunFileError, match=f"objective.{name} has to be rl.{name}"):
        parse(sampled)
    sections = parse(sampled.replace("[objective]\n", f"[objective]\n{name} = {value}\n")).sections()
    renderer = Renderer(load_tokenizer(train_tokenizer([], 260), 260))
    terms = terms_of(RunId("run"), sections, renderer, "1", Digest(b"t" * 32))
    assert getattr(terms.sampling, name) == getattr(objective_of(sections), name) == value


def test_a_genesis_with_something_else_is_refused() -> None:
    for wrong in ({"group_size": 1}, {"colour": "red"}, {"window": "two"}):
        with pytest.raises(NodeError) as refused:
            rl_of(RunSections(rl=wrong))
        assert refused.value.code is Code.CFG_GENESIS_INVALID


def test_a_node_has_one_of_the_three_roles() -> None:
    assert parse('[node]\nroles = ["rollout"]').node.roles == ("rollout",)
    for wrong in ('["rollout", "validator"]', '["trainer", "rollout"]', '["coordinator"]'):
        with pytest.raises(RunFileError, match="one of them"):
            parse(f"[node]\nroles = {wrong}")
