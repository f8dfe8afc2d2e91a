"""What an envelope proves, and with which code each forgery is refused."""

import struct
from collections.abc import Callable
from typing import Any

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from protocol import field, message, part, request
from protocol.envelope import DOMAIN, Header, ReplayWindow, Sealed, seal, unseal
from protocol.errors import Code, NodeError
from protocol.identity import Identity
from protocol.messages import encode
from protocol.messages.wire import runtime_class
from protocol.units import Digest, PeerId, RunId

ANA = Identity.ephemeral(b"a" * 32)
BEN = Identity.ephemeral(b"b" * 32)
RUN = RunId("11" * 32)
BOOT = b"0123456789abcdef"
SECOND = b"second boot here"


@message("envelope-test.note", version=2, max_bytes="1 KiB", rate="1/s", audience="anyone")
class Note:
    text: str = field(1)


@message("envelope-test.other", version=2, max_bytes="1 KiB", rate="1/s", audience="anyone")
class Other:
    text: str = field(1)


@message("envelope-test.bulk", version=1, max_bytes="1 KiB", rate="1/s", audience="anyone", plane="bulk")
class Bulk:
    text: str = field(1)


@request("envelope-test.ask", version=1, max_bytes="1 KiB", rate="1/s", timeout="1 s", replies=Note)
class Ask: ...


def refusal(open_it: Callable[[], object]) -> Code:
    with pytest.raises(NodeError) as caught:
        open_it()
    return caught.value.code


def letter() -> Sealed[Note]:
    return seal(ANA, RUN, Note("hello"), recipient=BEN.peer_id, boot=BOOT, sequence=7)


def forged(content: bytes | None = None, **changes: Any) -> bytes:
    """An envelope whose header says something else, with a good signature."""
    data = encode(Note("hello")) if content is None else content
    values: dict[str, Any] = {
        "domain": DOMAIN,
        "run": RUN,
        "name": "envelope-test.note",
        "version": 2,
        "sender": ANA.peer_id,
        "recipient": BEN.peer_id,
        "boot": BOOT,
        "sequence": 7,
        "payload": Digest(blake3(data).digest()),
    }
    header = runtime_class(Header)(**{**values, **changes}).SerializeToString()
    signature = ANA.sign(b"intellect-node envelope 1\x00" + header)
    return bytes((len(signature),)) + signature + struct.pack("<H", len(header)) + header + data


def test_what_is_sealed_is_opened() -> None:
    sealed = letter()
    opened = unseal(sealed.raw, run=RUN, expect=Note, me=BEN.peer_id)
    assert opened.message == Note("hello")
    assert (opened.sender, opened.recipient, opened.run) == (ANA.peer_id, BEN.peer_id, RUN)
    assert (opened.boot, opened.sequence, opened.version) == (BOOT, 7, 2)
    assert opened == sealed
    assert hash(opened) == hash(sealed)
    assert opened.digest == blake3(sealed.raw).digest()
    assert forged() == sealed.raw


def test_a_statement_can_be_passed_on_to_anyone() -> None:
    statement = seal(ANA, RUN, Note("vote"))
    for reader in (ANA.peer_id, BEN.peer_id, None):
        assert unseal(statement.raw, run=RUN, me=reader).recipient is None


def test_a_message_is_found_by_its_name_when_none_is_expected() -> None:
    opened: Sealed[Any] = unseal(letter().raw, run=RUN)
    assert opened.message == Note("hello")


def test_any_run_is_accepted_only_where_the_run_is_not_known_yet() -> None:
    early = seal(ANA, None, Note("here I am"))
    assert unseal(early.raw, run=None).run == ""
    assert unseal(letter().raw, run=None).run == RUN
    assert refusal(lambda: unseal(early.raw, run=RUN)) is Code.WIRE_WRONG_RUN


@given(st.data())
def test_any_flipped_bit_is_refused(draw: st.DataObject) -> None:
    raw = bytearray(letter().raw)
    bit = draw.draw(st.integers(0, len(raw) * 8 - 1))
    raw[bit // 8] ^= 1 << bit % 8
    with pytest.raises(NodeError):
        unseal(bytes(raw), run=RUN, expect=Note, me=BEN.peer_id)


@given(st.integers(0, 400), st.binary(max_size=5))
def test_any_cut_or_longer_envelope_is_refused(cut: int, more: bytes) -> None:
    raw = letter().raw
    changed = raw[:cut] + more
    if changed != raw:
        with pytest.raises(NodeError):
            unseal(changed, run=RUN, expect=Note, me=BEN.peer_id)


@given(st.binary(max_size=300))
def test_any_bytes_are_refused_with_a_reason(raw: bytes) -> None:
    with pytest.raises(NodeError):
        unseal(raw, run=RUN, expect=Note, me=BEN.peer_id)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"domain": "intellect.admission.1"}, Code.WIRE_DOMAIN),
        ({"run": "22" * 32}, Code.WIRE_WRONG_RUN),
        ({"run": ""}, Code.WIRE_WRONG_RUN),
        ({"name": "envelope-test.other"}, Code.WIRE_WRONG_MESSAGE),
        ({"version": 0}, Code.NET_VERSION),
        ({"version": 4}, Code.NET_VERSION),
        ({"recipient": ANA.peer_id}, Code.WIRE_WRONG_RECIPIENT),
        ({"sender": BEN.peer_id}, Code.WIRE_SIGNATURE),
        ({"sender": "nobody"}, Code.WIRE_SIGNATURE),
        ({"payload": Digest(bytes(32))}, Code.WIRE_SIGNATURE),
        ({"payload": b""}, Code.WIRE_SIGNATURE),
        ({"boot": b""}, Code.WIRE_INVALID),
        ({"boot": bytes(15)}, Code.WIRE_INVALID),
        ({"boot": bytes(17)}, Code.WIRE_INVALID),
        ({"boot": bytes(15), "recipient": ""}, Code.WIRE_INVALID),
    ],
)
def test_each_header_that_does_not_fit_is_refused_with_its_code(changes: dict[str, Any], code: Code) -> None:
    assert refusal(lambda: unseal(forged(**changes), run=RUN, expect=Note, me=BEN.peer_id)) is code


@pytest.mark.parametrize("field", ["domain", "run", "name", "sender", "recipient"])
@pytest.mark.parametrize("text", ["\x1b[31mred\n", "x" * 65, "\u202ereversed"])
def test_what_is_said_of_a_foreign_header_can_be_shown(field: str, text: str) -> None:
    for expect in (Note, None):
        with pytest.raises(NodeError) as caught:
            unseal(forged(**{field: text}), run=None, expect=expect, me=BEN.peer_id)
        error = caught.value
        assert error.code is (Code.WIRE_DOMAIN if field == "domain" else Code.WIRE_INVALID)
        assert error.sentence.isprintable() and len(error.sentence) < 200
        assert error.peer is None


def test_versions_next_to_ours_are_understood() -> None:
    for version in (1, 2, 3):
        assert unseal(forged(version=version), run=RUN, expect=Note).version == version


def test_an_unknown_name_and_a_bulk_name_are_refused() -> None:
    assert refusal(lambda: unseal(forged(name="no.such"), run=RUN)) is Code.NET_UNKNOWN_MESSAGE
    assert refusal(lambda: unseal(forged(name="envelope-test.bulk"), run=RUN)) is Code.WIRE_WRONG_MESSAGE


def test_a_payload_beyond_its_class_is_refused_before_its_signature_is_checked() -> None:
    def never(peer: PeerId, data: bytes, signature: bytes) -> bool:
        raise AssertionError("the signature was looked at")

    big = forged(bytes(2000))
    assert refusal(lambda: unseal(big, run=RUN, expect=Note, verifier=never)) is Code.WIRE_TOO_LARGE
    assert refusal(lambda: unseal(big, run=RUN, verifier=never)) is Code.WIRE_TOO_LARGE
    assert refusal(lambda: unseal(bytes(5 * 2**20), run=RUN, verifier=never)) is Code.WIRE_TOO_LARGE


def test_nothing_is_decoded_before_its_signature_holds() -> None:
    malformed = forged(b"\xff\xff\xff")
    assert refusal(lambda: unseal(malformed, run=RUN, expect=Note)) is Code.WIRE_MALFORMED
    unsigned = bytearray(malformed)
    unsigned[1] ^= 1
    assert refusal(lambda: unseal(bytes(unsigned), run=RUN, expect=Note)) is Code.WIRE_SIGNATURE


def test_only_control_messages_are_sealed() -> None:
    @part
    class Piece:
        x: int = field(1, default=0)

    assert seal(ANA, RUN, Ask()).message == Ask()
    for other in (Bulk("x"), Piece()):
        assert refusal(lambda other=other: seal(ANA, RUN, other)) is Code.WIRE_DECLARATION  # type: ignore[misc]


class KeyedHash:
    """A signer for simulations: fast, and good enough among friends."""

    peer_id = PeerId("simulated-1")

    def sign(self, data: bytes) -> bytes:
        return blake3(data, key=self.peer_id.encode().ljust(32)).digest()


def keyed_hash_holds(peer: PeerId, data: bytes, signature: bytes) -> bool:
    return blake3(data, key=peer.encode().ljust(32)).digest() == signature


def test_signer_and_verifier_can_be_replaced() -> None:
    sealed = seal(KeyedHash(), RUN, Note("x"))
    assert unseal(sealed.raw, run=RUN, expect=Note, verifier=keyed_hash_holds).sender == "simulated-1"
    assert refusal(lambda: unseal(sealed.raw, run=RUN, expect=Note)) is Code.WIRE_SIGNATURE


# --- replay -------------------------------------------------------------------------------------------------------


def numbered(sequence: int, boot: bytes = BOOT, signer: Any = None) -> Sealed[Note]:
    return seal(signer or KeyedHash(), RUN, Note("x"), recipient=BEN.peer_id, boot=boot, sequence=sequence)


@given(st.lists(st.integers(0, 3000), max_size=80))
def test_the_window_lets_each_sequence_through_once(sequences: list[int]) -> None:
    window, seen, highest = ReplayWindow(), set[int](), -1
    for sequence in sequences:
        fresh = sequence not in seen and sequence > highest - 1024
        try:
            window.accept(numbered(sequence))
            accepted = True
        except NodeError as error:
            assert error.code is Code.WIRE_REPLAY
            accepted = False
        assert accepted == fresh
        seen.add(sequence)
        highest = max(highest, sequence)


def test_senders_do_not_share_a_window() -> None:
    window = ReplayWindow()
    window.accept(numbered(5))
    window.accept(numbered(5, signer=ANA))


def test_a_new_boot_number_starts_afresh_and_the_old_one_is_refused() -> None:
    window = ReplayWindow()
    window.accept(numbered(5))
    window.accept(numbered(5, boot=SECOND))
    assert refusal(lambda: window.accept(numbered(6))) is Code.WIRE_OLD_BOOT
    window.accept(numbered(6, boot=SECOND))


def test_replay_old_boot_and_anothers_letter_are_refused_before_decoding() -> None:
    """Each payload is no message at all, so whatever is refused with another code was refused before it was read."""
    window = ReplayWindow()

    def open_it(boot: bytes, sequence: int, **more: Any) -> Code:
        raw = forged(b"\xff\xff\xff", boot=boot, sequence=sequence)
        return refusal(lambda: unseal(raw, run=RUN, expect=Note, me=BEN.peer_id, window=window, **more))

    assert open_it(BOOT, 7, peer=ANA.peer_id) is Code.WIRE_MALFORMED
    assert open_it(BOOT, 7, peer=ANA.peer_id) is Code.WIRE_REPLAY
    assert open_it(SECOND, 1, peer=ANA.peer_id) is Code.WIRE_MALFORMED
    assert open_it(BOOT, 8, peer=ANA.peer_id) is Code.WIRE_OLD_BOOT
    assert open_it(SECOND, 2, peer=BEN.peer_id) is Code.WIRE_WRONG_RECIPIENT
    assert open_it(SECOND, 2, peer=ANA.peer_id) is Code.WIRE_MALFORMED  # the one before took no note of it


FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "domain": st.text("abc.1", max_size=8),
    "run": st.text("0123456789abcdef", min_size=64, max_size=64),
    "name": st.sampled_from(["envelope-test.other", "envelope-test.bulk", "no.such", ""]),
    "version": st.integers(4, 2**32 - 1) | st.just(0),
    "recipient": st.just(ANA.peer_id) | st.text("abc", min_size=1, max_size=20),
    "sender": st.just(BEN.peer_id) | st.text("abc", max_size=20),
    "payload": st.binary(min_size=32, max_size=32).map(Digest),
}
REFUSED_WITH = {
    "domain": {Code.WIRE_DOMAIN},
    "run": {Code.WIRE_WRONG_RUN},
    "name": {Code.WIRE_WRONG_MESSAGE},
    "version": {Code.NET_VERSION},
    "recipient": {Code.WIRE_WRONG_RECIPIENT},
    "sender": {Code.WIRE_SIGNATURE},
    "payload": {Code.WIRE_SIGNATURE},
}


@given(st.sampled_from(sorted(FIELDS)), st.data())
def test_any_other_value_of_any_header_field_is_refused_with_its_code(name: str, draw: st.DataObject) -> None:
    """The signature is good, the payload no message: so neither of them is why it is refused."""
    value = draw.draw(FIELDS[name])
    raw = forged(b"\xff\xff\xff", **{name: value})
    assert refusal(lambda: unseal(raw, run=RUN, expect=Note, me=BEN.peer_id)) in REFUSED_WITH[name]


@given(st.data())
def test_a_header_taken_from_another_envelope_of_the_same_sender_is_refused(draw: st.DataObject) -> None:
    """Signature, header and payload of two good envelopes in every mixture: only the unmixed ones are opened."""
    parts = [
        _cut(seal(ANA, RUN, Note(text), recipient=BEN.peer_id, boot=BOOT).raw) for text in ("one", "two")
    ]
    chosen = [draw.draw(st.integers(0, 1)) for _ in range(3)]
    raw = b"".join(parts[chosen[at]][at] for at in range(3))
    if len(set(chosen)) == 1:
        assert unseal(raw, run=RUN, expect=Note).message == Note(("one", "two")[chosen[0]])
    else:
        assert refusal(lambda: unseal(raw, run=RUN, expect=Note)) is Code.WIRE_SIGNATURE


def _cut(raw: bytes) -> tuple[bytes, bytes, bytes]:
    start = 1 + raw[0]
    end = start + 2 + struct.unpack_from("<H", raw, start)[0]
    return raw[:start], raw[start:end], raw[end:]


def test_a_forgotten_sender_starts_afresh() -> None:
    window = ReplayWindow()
    window.accept(numbered(5))
    window.forget(KeyedHash.peer_id)
    window.accept(numbered(5))
