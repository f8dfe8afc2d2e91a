"""Streams of questions, and streams both ways: deadlines, back-pressure, and how they end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import timedelta
from typing import Any

import pytest

from protocol import field, request
from protocol.errors import Code, NodeError
from protocol.rpc import Context
from protocol.testing import local_endpoints
from tests.protocol.rpc.instruments import refusal
from tests.protocol.rpc.words import Frame, Word

SOON = timedelta(milliseconds=300)


@request(
    "rpc-test.join",
    version=1,
    max_bytes="1 KiB",
    rate="1000/s",
    timeout="5 s",
    replies=Word,
    stream="requests",
)
class Join:
    text: str = field(1)


@request(
    "rpc-test.shout", version=1, max_bytes="1 KiB", rate="1000/s", timeout="5 s", replies=Word, stream="both"
)
class Shout:
    text: str = field(1)


@request(
    "rpc-test.dictate", version=1, max_bytes="1 KiB", rate="20/s burst 2", timeout="300 ms", replies=Word,
    stream="requests",
)  # fmt: skip
class Dictate:
    text: str = field(1)


@request(
    "rpc-test.refused", version=1, max_bytes="1 KiB", rate="10000/s", timeout="5 s", replies=Word, stream="requests",
)  # fmt: skip
class Refused:
    text: str = field(1)


@request(
    "rpc-test.push", version=1, max_bytes="2 MiB", rate="1000/s", timeout="5 s", replies=Frame, stream="requests",
    plane="bulk",
)  # fmt: skip
class Push:
    data: memoryview = field(1)


class Ears:
    """Handlers, and what they have taken so far."""

    def __init__(self) -> None:
        self.taken = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.left = asyncio.Event()

    async def on_join(self, messages: AsyncIterator[Join], context: Context) -> Word:
        assert context.sealed is None
        return Word(" ".join([message.text async for message in messages]))

    async def on_shout(self, messages: AsyncIterator[Shout], context: Context) -> AsyncIterator[Word]:
        try:
            async for message in messages:
                if message.text == "bad":
                    raise NodeError(Code.RND_BANNED, "No more.", fix="Be quiet.")
                if message.text == "enough":
                    return
                yield Word(message.text.upper())
        finally:
            self.left.set()

    async def on_dictate(self, messages: AsyncIterator[Dictate], context: Context) -> Word:
        words = []
        async for message in messages:
            words.append(message.text)
        return Word(" ".join(words))

    async def on_push(self, messages: AsyncIterator[Push], context: Context) -> Frame:
        async for message in messages:
            self.taken += len(message.data)
            await self.gate.wait()
        return Frame(self.taken, b"")


class Pair:
    def __init__(self, caller: Any, server: Any, ears: Ears) -> None:
        self.caller, self.server, self.ears = caller, server, ears
        self.peer = server.peer_id


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    async with local_endpoints(2) as (caller, server):
        ears = Ears()
        for handler in (ears.on_join, ears.on_shout, ears.on_dictate, ears.on_push):
            server.handle(handler)
        yield Pair(caller, server, ears)


async def words(*texts: str, kind: Any = Join) -> AsyncIterator[Any]:
    for text in texts:
        yield kind(text)


async def test_many_questions_have_one_answer(pair: Pair) -> None:
    assert await pair.caller.feed(pair.peer, Join, words("one", "two")) == Word("one two")
    assert await pair.caller.feed(pair.peer, Join, words()) == Word("")


async def test_answers_come_while_questions_go(pair: Pair) -> None:
    said: asyncio.Queue[str | None] = asyncio.Queue()

    async def questions() -> AsyncIterator[Shout]:
        while (text := await said.get()) is not None:
            yield Shout(text)

    async with aclosing(pair.caller.converse(pair.peer, Shout, questions())) as answers:
        for text in ("a", "b"):
            said.put_nowait(text)
            assert await anext(answers) == Word(text.upper())
        said.put_nowait(None)
        assert [answer async for answer in answers] == []


async def test_the_answer_may_end_before_the_questions(pair: Pair) -> None:
    async def endless() -> AsyncIterator[Shout]:
        yield Shout("enough")
        await asyncio.Event().wait()

    assert [answer async for answer in pair.caller.converse(pair.peer, Shout, endless())] == []


async def test_an_error_in_the_middle_reaches_the_caller_with_its_hint(pair: Pair) -> None:
    error = await refusal(anext(pair.caller.converse(pair.peer, Shout, words("bad", kind=Shout))))
    assert (error.code, error.sentence, error.fix) == (Code.RND_BANNED, "No more.", "Be quiet.")
    assert (error.peer, error.message, error.retriable) == (pair.peer, "rpc-test.shout", False)


async def test_what_the_questions_raise_ends_the_call_on_both_sides(pair: Pair) -> None:
    async def broken() -> AsyncIterator[Shout]:
        yield Shout("a")
        raise RuntimeError("no more ideas")

    answers = pair.caller.converse(pair.peer, Shout, broken())
    with pytest.raises(RuntimeError, match="no more ideas"):
        async for _ in answers:
            pass
    await pair.ears.left.wait()


async def test_one_who_leaves_early_ends_the_call(pair: Pair) -> None:
    async def endless() -> AsyncIterator[Shout]:
        yield Shout("a")
        await asyncio.Event().wait()

    async with aclosing(pair.caller.converse(pair.peer, Shout, endless())) as answers:
        assert await anext(answers) == Word("A")
    await pair.ears.left.wait()


async def test_a_question_of_another_class_never_leaves(pair: Pair) -> None:
    with pytest.raises(TypeError, match="Shout"):
        await pair.caller.feed(pair.peer, Join, words("x", kind=Shout))


async def test_a_caller_that_says_nothing_is_given_up(pair: Pair) -> None:
    async def silent() -> AsyncIterator[Dictate]:
        yield Dictate("a")
        await asyncio.Event().wait()

    error = await refusal(pair.caller.feed(pair.peer, Dictate, silent(), progress=timedelta(minutes=1)))
    assert error.code is Code.NET_TIMEOUT
    assert error.retriable


async def test_questions_beyond_the_rate_are_read_later_and_none_is_lost(pair: Pair) -> None:
    texts = [str(number) for number in range(6)]
    patient = timedelta(seconds=60)
    answer = await pair.caller.feed(pair.peer, Dictate, words(*texts, kind=Dictate), progress=patient)
    assert answer == Word(" ".join(texts))


async def test_a_peer_that_answers_nothing_is_given_up_after_the_progress_deadline(pair: Pair) -> None:
    async def held() -> AsyncIterator[Shout]:
        await asyncio.Event().wait()
        yield Shout("never")

    error = await refusal(anext(pair.caller.converse(pair.peer, Shout, held(), progress=SOON)))
    assert error.code is Code.NET_TIMEOUT


async def test_the_deadline_of_a_whole_stream_is_known_to_both_ends(pair: Pair) -> None:
    seen: list[float | None] = []

    async def on_word(message: Word, context: Context) -> None:
        seen.append(context.time_left)

    pair.server.handle(on_word)
    await pair.caller.send(pair.peer, Word("x"), timeout=timedelta(seconds=30))
    assert seen[0] is not None
    assert 0 < seen[0] <= 30

    async def held() -> AsyncIterator[Shout]:
        await asyncio.Event().wait()
        yield Shout("never")

    error = await refusal(anext(pair.caller.converse(pair.peer, Shout, held(), timeout=SOON)))
    assert error.code is Code.NET_TIMEOUT
    await pair.ears.left.wait()


async def test_a_slow_reader_holds_the_writer_back(pair: Pair) -> None:
    pair.ears.gate.clear()
    written = 0
    stuck = asyncio.Event()

    async def endless() -> AsyncIterator[Push]:
        nonlocal written
        for _ in range(64):
            yield Push(memoryview(bytes(2**20)))
            written += 1
        stuck.set()

    call = asyncio.ensure_future(pair.caller.feed(pair.peer, Push, endless()))
    before = -1
    while before != written:  # until nothing more goes
        before = written
        await asyncio.sleep(0.2)
    assert written < 40
    assert not stuck.is_set()
    pair.ears.gate.set()
    assert await call == Frame(64 * 2**20, b"")


async def test_why_a_peer_refuses_a_stream_is_told_though_more_questions_are_on_their_way(pair: Pair) -> None:
    async def on_refused(messages: AsyncIterator[Refused], context: Context) -> Word:
        await anext(messages)
        raise NodeError(Code.RND_BANNED, "No more.", fix="Be quiet.")

    pair.server.handle(on_refused)
    for _ in range(
        200
    ):  # it is a matter of moments who is first: the refusal, or a question that finds the call ended
        error = await refusal(pair.caller.feed(pair.peer, Refused, words(*"abcd" * 8, kind=Refused)))
        assert (error.code, error.sentence) == (Code.RND_BANNED, "No more.")


async def test_each_way_of_calling_is_for_its_kind_of_request(pair: Pair) -> None:
    for wrong in (
        lambda: pair.caller.request(pair.peer, Join("x")),
        lambda: anext(pair.caller.stream(pair.peer, Shout("x"))),
        lambda: pair.caller.feed(pair.peer, Shout, words()),
    ):
        with pytest.raises(TypeError):
            await wrong()
    with pytest.raises(TypeError):
        pair.caller.converse(pair.peer, Join, words())


def test_a_handler_has_to_take_what_the_declaration_says() -> None:
    from protocol.rpc.routes import route_of

    async def one(message: Join, context: Context) -> Word:
        raise NotImplementedError

    async def stream(messages: AsyncIterator[Word], context: Context) -> None: ...

    async def no_stream(messages: AsyncIterator[Shout], context: Context) -> Word:
        raise NotImplementedError

    for handler in (one, stream, no_stream):
        with pytest.raises(NodeError) as caught:
            route_of(handler)
        assert caught.value.code is Code.WIRE_DECLARATION
