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
