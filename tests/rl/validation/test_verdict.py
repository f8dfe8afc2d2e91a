import pytest

from protocol.errors import Code
from protocol.identity import Identity
from protocol.units import Digest
from rl.validation.verdict import (
    BAN,
    MOST_FINDINGS,
    STRIKES,
    Finding,
    Outcome,
    Verdict,
    gravest_first,
    settle,
)

ANA, VAL, VIC, VIV = (Identity.ephemeral(letter * 32).peer_id for letter in (b"a", b"v", b"w", b"x"))
BAD = Finding(Code.RL_PROOF, "Proof 0 is refused.", 7, 1, {"chunks": 1})


def verdict(validator: str, outcome: Outcome) -> Verdict:
    findings = {
        Outcome.REFUSED: (BAD,),
        Outcome.UNDECIDED: (Finding(Code.RL_UNJUDGED, "No weights."),),
        Outcome.ACCEPTED: (),
    }[outcome]
    return Verdict(Digest(bytes(32)), ANA, VIV, 0, validator, outcome, findings, rollouts=8, audited=8)


YES, NO, UNSURE = Outcome.ACCEPTED, Outcome.REFUSED, Outcome.UNDECIDED


@pytest.mark.parametrize(
    ("said", "twice", "outcome", "disputed", "wanted"),
    [
        ([], False, UNSURE, False, 1),
        ([], True, UNSURE, False, 2),
        ([YES], False, YES, False, 0),
        ([NO], False, NO, False, 0),
        ([NO], True, UNSURE, False, 1),
        ([UNSURE], False, UNSURE, False, 1),
        ([UNSURE, YES], False, YES, False, 0),
        ([NO, NO], True, NO, False, 0),
        ([YES, YES], True, YES, False, 0),
        ([YES, NO], True, UNSURE, True, 1),
        ([NO, YES, NO], True, NO, True, 0),
        ([NO, YES, YES], True, YES, True, 0),
        ([NO, YES, UNSURE], True, UNSURE, True, 1),
    ],
)
def test_verdicts_come_to_one_outcome_and_a_third_validator_decides_between_two(
    said: list[Outcome], twice: bool, outcome: Outcome, disputed: bool, wanted: int
) -> None:
    verdicts = [verdict(peer, one) for peer, one in zip((VAL, VIC, VIV), said, strict=False)]
    found = settle(verdicts, twice=twice)
    assert (found.outcome, found.disputed, found.wanted) == (outcome, disputed, wanted)


def test_two_validators_that_disagree_are_both_shown_with_what_they_say() -> None:
    found = settle([verdict(VAL, YES), verdict(VIC, NO)], twice=True)
    assert "disagree" in found.sentence
    assert f"{VAL} accepts it" in found.sentence
    assert f"{VIC} refuses it (E-RL-081: Proof 0 is refused.)" in found.sentence


def test_what_a_correct_worker_cannot_produce_bans_and_what_is_late_or_broken_does_not() -> None:
    assert verdict(VAL, NO).strikes == BAN
    assert verdict(VAL, UNSURE).strikes == verdict(VAL, YES).strikes == 0
    late = Verdict(
        Digest(bytes(32)),
        ANA,
        VIV,
        0,
        VAL,
        NO,
        (Finding(Code.RL_WINDOW, "Late."), Finding(Code.RL_LENGTH, "Empty.")),
    )
    assert (STRIKES[Code.RL_WINDOW], late.strikes) == (0, 1)


def test_the_gravest_finding_is_the_verdicts_code_and_their_number_is_bounded() -> None:
    many = [Finding(Code.RL_LENGTH, f"Rollout {number}.") for number in range(100)] + [BAD]
    kept = gravest_first(many)
    assert (len(kept), kept[0], kept[1].code) == (MOST_FINDINGS, BAD, Code.RL_LENGTH)


def test_evidence_is_finite() -> None:
    with pytest.raises(ValueError, match="nan"):
        Finding(Code.RL_PROOF, "Bad.", evidence={"score": float("nan")})
