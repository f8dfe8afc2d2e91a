"""The torch backend without an event loop: requests go in, each step gives the pieces that came of it."""

import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from protocol.errors import Code, NodeError
from rl.engine.cache import Cache
from rl.engine.forward import Stretch, logits, step
from rl.engine.holding import Held, Holder
from rl.engine.interface import CHUNK, MOST_REFILLS, Former, Piece, Request
from rl.engine.limits import MAX_ID_BYTES, MAX_VERSIONS, Limits
from rl.engine.proving import Prover, cut
from rl.engine.schedule import Move, Running, Schedule, Work
from rl.engine.weights import Weights
from rl.sampling import choose, finish, noise, processed
from rl.sampling.ending import Decode


@dataclass(frozen=True, eq=False)
class Policy:
    """One version's weights, and the only cache that they read and write."""

    weights: Weights
    cache: Cache


class Generator:
    """Continues sequences, one step at a time. It belongs to one thread."""

    def __init__(
        self,
        weights: Weights,
        version: int = 0,
        limits: Limits | None = None,
        decode: Decode | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make one.

        Args:
            weights: Of the first version.
            version: Its number.
            limits: What it takes on.
            decode: Token ids to text, for stop texts.
            clock: Seconds, for how long conversations are held.
        """
        self.limits = limits or Limits()
        self.shape = weights.shape
        self._decode = decode
        self._clock = clock
        self._policies: OrderedDict[int, Policy] = OrderedDict()
        self.schedule = Schedule(self.limits.slots, version)
        self._add_policy(version, weights)
        self.holder = Holder(self.limits.held_bytes, self.limits.held_for)
        self._prover = Prover()
        self._requests: dict[str, Running] = {}
        self._pool = (
            ThreadPoolExecutor(threads, "sampling") if (threads := torch.get_num_threads()) > 1 else None
        )

    @property
    def version(self) -> int:
        """The newest policy version."""
        return self.schedule.newest

    @property
    def busy(self) -> bool:
        """Whether a step would do anything."""
        return self.schedule.busy

    @property
    def versions(self) -> tuple[int, ...]:
        """Versions whose weights are in memory."""
        return tuple(self._policies)

    def add(self, request: Request) -> None:
        """Take on a request.

        Raises:
            NodeError: As `Engine.generate`.
        """
        self._check(request)
        running = self._continued(request) if request.former is not None else self._new(request)
        self._requests[request.id] = running
        self.schedule.add(running)

    def cancel(self, id: str) -> None:
        """Forget a request and free its slot; nothing happens if it is not there."""
        running = self._requests.pop(id, None)
        if running is not None:
            self.schedule.remove(running)
            self._prover.discard(id)

    def release(self, id: str) -> None:
        """Forget a held conversation."""
        self.holder.forget(id)

    @property
    def may_update(self) -> bool:
        """Whether there is room for another version's weights."""
        self._retire()
        return len(self._policies) < MAX_VERSIONS

    def update(self, version: int, weights: Weights) -> None:
        """Take newer weights; see `Engine.update`.

        Raises:
            NodeError: ``RL_WEIGHTS``: not newer, of another shape, or `may_update` is false.
        """
        if version <= self.version or weights.shape != self.shape or not self.may_update:
            raise NodeError(
                Code.RL_WEIGHTS,
                f"Version {version} cannot follow version {self.version}: it is not newer, has another shape, or "
                f"{MAX_VERSIONS} versions are in use.",
            )
        self.holder.forget_before(self.version)
        self._add_policy(version, weights)
        self.schedule.update(version)
        self._retire()

    def step(self) -> list[tuple[str, Piece]]:
        """Do one step.

        Returns:
            What came of it, by request.
        """
        pieces: list[tuple[str, Piece]] = []
        with torch.inference_mode():
            for work in self.schedule.plan():
                pieces += self._run(work)
        self.holder.expire(self._clock())
        self._retire()
        return pieces

    def close(self) -> None:
        """End its threads."""
        self._prover.close()
        if self._pool is not None:
            self._pool.shutdown()

    def _add_policy(self, version: int, weights: Weights) -> None:
        device = weights.embedding.device
        cache = Cache(weights.shape, self.limits.slots, weights.kind, device)
        self._policies[version] = Policy(weights, cache)

    def _retire(self) -> None:
        for version in list(self._policies):
            if version != self.version and not self.schedule.uses(version) and not self.holder.uses(version):
                self.schedule.retire(version)
                del self._policies[version]

    def _check(self, request: Request) -> None:
        count, context = len(request.tokens), self.shape.context
        sampling = request.sampling
        if not 0 < count < context:
            raise _refused(
                f"It has {count} tokens; the model's context holds {context} with at least one more."
            )
        if not all(0 <= token < self.shape.vocab for token in request.tokens):
            raise _refused(f"A token is not of the vocabulary of {self.shape.vocab}.")
        if not 0 <= request.prompt <= count or len(request.seed) != 32:
            raise _refused("Its prompt is longer than its tokens, or its seed has not 32 bytes.")
        if not 0 <= request.first < sampling.max_tokens:
            raise _refused(f"It is to begin with token {request.first} of at most {sampling.max_tokens}.")
        if not 0 < len(request.id.encode()) <= MAX_ID_BYTES or request.id in self._requests:
            raise _refused("Its id is empty, too long or taken.")
        if sampling.stop and self._decode is None:
            raise _refused("Stop texts need a tokenizer, which the engine was not given.")
        if len(self._requests) >= self.limits.slots + self.limits.waiting:
            raise NodeError(Code.RL_BUSY, f"{self.limits.waiting} requests wait already.")

    def _new(self, request: Request) -> Running:
        if request.proofs:
            self._prover.begin(request.id)
        return Running(request, self.version, list(request.tokens), request.prompt or len(request.tokens))

    def _continued(self, request: Request) -> Running:
        former = request.former
        assert former is not None
        held = self.holder.take(former.id)
        if held is not None and (
            held.tokens != request.tokens[: len(held.tokens)] or held.prompt != request.prompt
        ):
            raise _refused("Its tokens do not begin with those of the turn before.")
        if held is not None and (held.proofs is not None) != request.proofs:
            held = None
        if held is None or held.version not in self._policies:
            return self._read_again(request, former)
        if held.proofs is not None:
            self._prover.begin(request.id, held.proofs)
        return Running(
            request,
            held.version,
            list(request.tokens),
            held.prompt,
            computed=held.saved.length,
            proved=held.saved.length - held.prompt + 1,
            chunks=list(held.chunks),
            refills=held.refills,
            reused=held.saved.length,
            begun=True,
            fresh=False,
            saved=held.saved,
        )

    def _read_again(self, request: Request, former: Former) -> Running:
        """Go on with a conversation that is not held; the version that began its open chunk computes that again."""
        full, rest = divmod(former.length - request.prompt, CHUNK)
        versions = former.proof_versions
        if (
            not 0 < request.prompt < former.length <= len(request.tokens)
            or len(versions) != full + (rest > 0)
            or not 0 <= former.refills <= MOST_REFILLS
        ):
            raise _refused("What it says of the turns before contradicts its tokens.")
        version = versions[-1] if rest else self.version
        if version not in self._policies:
            raise NodeError(
                Code.RL_GONE,
                f"The conversation's open chunk is of version {version}, which the engine has no longer.",
            )
        if request.proofs:
            try:
                self._prover.begin(request.id, cut(former.proofs, full))
            except ValueError as error:
                raise _refused(f"The proofs of the turns before are none: {error}.") from None
        return Running(
            request,
            version,
            list(request.tokens),
            request.prompt,
            proved=full * CHUNK,
            chunks=list(versions[:full]),
            refills=former.refills + (version != versions[-1]),
            begun=True,
            fresh=False,
        )

    def _run(self, work: Work) -> list[tuple[str, Piece]]:
        policy = self._policies[work.version]
        for slot, saved in work.loads:
            policy.cache.load(slot, saved)
        for move in work.moves:
            _moved(policy.cache, move)
        decode = work.decode
        device = policy.weights.embedding.device
        tokens = torch.tensor([each.tokens[-1] for each in decode], dtype=torch.int64, device=device)
        positions = torch.tensor([each.computed for each in decode], dtype=torch.int64, device=device)
        stretches = [
            Stretch(
                each.running.slot,
                each.begin,
                torch.tensor(each.running.tokens[each.begin : each.end], device=device),
            )
            for each in work.reads
        ]
        states = step(policy.weights, policy.cache, tokens, positions, stretches)
        begin = len(decode)
        for read in work.reads:
            due = self.schedule.has_read(read)
            if due:
                self._prover.add(
                    read.running.request.id,
                    states[begin + due.start - read.begin : begin + due.stop - read.begin],
                )
            begin += read.end - read.begin
        if not decode:
            return []
        for running, state in zip(decode, states[: len(decode)].unbind(), strict=True):
            self._prover.add(running.request.id, state)
            self.schedule.has_decoded(running)
        rows = logits(policy.weights, states[: len(decode)]).numpy(force=True)
        drawn = map if self._pool is None else self._pool.map
        return [
            self._grown(running, policy, token, logprob)
            for running, (token, logprob) in zip(decode, drawn(_draw, decode, rows), strict=True)
        ]

    def _grown(self, running: Running, policy: Policy, token: int, logprob: float) -> tuple[str, Piece]:
        request, tokens = running.request, running.tokens
        tokens.append(token)
        begun = len(request.tokens)
        reason = finish(
            request.sampling, tokens[begun:], self._decode, request.first, self.shape.context - len(tokens)
        )
        if reason is None:
            return request.id, Piece((token,), (logprob,), (running.version,))
        proofs, state = self._prover.finish(request.id)
        if request.keep:
            held = Held(
                tuple(tokens),
                running.prompt,
                running.version,
                policy.cache.save(running.slot, running.computed),
                state,
                tuple(running.chunks),
                running.refills,
                self._clock() + self.limits.held_for.total_seconds(),
            )
            self.holder.put(request.id, held)
        self.schedule.remove(running)
        del self._requests[request.id]
        piece = Piece(
            (token,),
            (logprob,),
            (running.version,),
            finish=reason,
            proofs=proofs,
            proof_versions=tuple(running.chunks),
            refills=running.refills,
            reused=running.reused,
        )
        return request.id, piece


def _draw(running: Running, row: npt.NDArray[np.float32]) -> tuple[int, float]:
    """The next token and its log-probability."""
    request = running.request
    logprobs = processed(row, request.sampling)
    if request.sampling.temperature == 0:
        token = int(np.argmax(logprobs))
    else:
        token = choose(logprobs, noise(request.seed, request.first + running.sampled, len(row)))
    return token, float(logprobs[token])


def _moved(cache: Cache, move: Move) -> None:
    if move.swap:
        parked = cache.save(move.target, move.swap)
        cache.copy(move.source, move.target, move.length)
        cache.load(move.source, parked)
    else:
        cache.copy(move.source, move.target, move.length)


def _refused(sentence: str) -> NodeError:
    return NodeError(Code.RL_REQUEST, f"The request cannot be served. {sentence}")
