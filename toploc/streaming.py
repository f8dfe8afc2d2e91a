"""Proofs while an engine generates: many sequences at once, off the engine's critical path.

The engine hands over the last hidden states of each step. What it pays for at that moment is a copy of the rows
into the sequence's window of ``decode_batching_size`` steps; a full window goes to a pool of threads, whose kernels
run without the interpreter lock. When the pool is ``backlog`` windows behind, the engine's own thread builds the
proof instead: memory stays bounded and nothing is dropped.

Chunk borders depend on the number of the decode step alone, never on how steps arrived: one row at a time, in batches
whose members come and go, or many rows after a restart that filled the cache again.
"""

import threading
from collections.abc import Hashable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import torch

from toploc.building import proof_of
from toploc.chunks import check_type, pick
from toploc.proof import ProofPoly


@dataclass(frozen=True, slots=True)
class Suspended:
    """A sequence set aside: what it takes to go on elsewhere, or after a restart.

    Attributes:
        proofs: the proofs so far, as bytes.
        steps: decode steps seen.
        window: states of the steps after the last full chunk, ``[steps % decode_batching_size, H]``, on the host.
        skip_prefill: no prefill proof is among ``proofs``.
    """

    proofs: tuple[bytes, ...]
    steps: int
    window: torch.Tensor
    skip_prefill: bool


@dataclass(slots=True)
class _Sequence:
    proofs: list["Future[ProofPoly]"] = field(default_factory=list)
    prefilled: bool = False
    steps: int = 0
    window: Any = None  # a tensor [decode_batching_size, H] where rows wait for more
    kind: tuple[torch.dtype, int] | None = None  # type and channels of the rows, once the first came


class StreamingBuilder:
    """Builds the proofs of many sequences as their hidden states appear.

    Calls for different sequences may come from different threads; calls for one sequence must not overlap.
    """

    def __init__(
        self, *, decode_batching_size: int = 32, topk: int = 128, threads: int = 1, backlog: int = 64
    ) -> None:
        """Start a pool.

        Args:
            decode_batching_size: steps per proof.
            topk: points per proof.
            threads: pool size. One thread builds about 15,000 proofs a second at H = 4096.
            backlog: windows that may wait for the pool before the caller builds its own.

        Raises:
            ValueError: an argument is below 1.
        """
        for name, value in (
            ("decode_batching_size", decode_batching_size), ("topk", topk), ("threads", threads), ("backlog", backlog)
        ):  # fmt: skip
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, not {value!r}")
        self._size = decode_batching_size
        self._topk = topk
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="toploc")
        self._room = threading.Semaphore(backlog)
        self._spare: list[torch.Tensor] = []
        self._spares = backlog
        self._lock = threading.Lock()
        self._closed = False
        self._sequences: dict[Hashable, _Sequence] = {}

    def prefill(self, sequence: Hashable, states: torch.Tensor) -> None:
        """Prove a sequence's prompt: all its last hidden states ``[T, H]``, before any decode step.

        Raises:
            ValueError: the sequence already has a prefill or decode steps, or the states are not ``[T, H]``.
            TypeError: as ``add``.
        """
        check_type(states)
        if states.dim() != 2:
            raise ValueError(f"states must be [T, H], not {tuple(states.shape)}")
        entry = self._entry(sequence)
        if entry.prefilled or entry.steps:
            raise ValueError(f"sequence {sequence!r} has already begun")
        entry.prefilled = True
        self._keep(sequence, entry)
        self._build(entry, states.detach().clone(), None)

    def add(self, sequence: Hashable, states: torch.Tensor, *, step: int | None = None) -> None:
        """The last hidden states of one or more decode steps of one sequence, in order. The rows are copied.

        Args:
            sequence: any name; a new one begins a sequence.
            states: ``[H]`` or ``[n, H]``, bfloat16, float16 or float32.
            step: number of the first row's decode step, from 0; by default the next one. Rows of steps already seen
                are skipped: after a preemption the engine may hand over everything that it computed again.

        Raises:
            ValueError: steps between those seen and ``step`` are missing, or rows have another width than before.
            TypeError: not a tensor of the three types, or of another type than before.
        """
        check_type(states)
        rows = states.detach().reshape(1, -1) if states.dim() == 1 else states.detach()
        if rows.dim() != 2:
            raise ValueError(f"states must be [H] or [n, H], not {tuple(states.shape)}")
        entry = self._entry(sequence)
        self._check_kind(entry, rows)
        first = entry.steps if step is None else step
        if first < 0 or first > entry.steps:
            raise ValueError(
                f"sequence {sequence!r} has {entry.steps} steps; rows from step {first} leave a gap"
            )
        begin = entry.steps - first
        entry.kind = (rows.dtype, rows.shape[1])
        self._keep(sequence, entry)
        while begin < rows.shape[0]:
            window = self._window(entry, rows)
            place = entry.steps % self._size
            count = min(self._size - place, rows.shape[0] - begin)
            window[place : place + count].copy_(rows[begin : begin + count])
            begin += count
            entry.steps += count
            if entry.steps % self._size == 0:
                entry.window = None
                self._build(entry, window, window)

    def add_batch(self, sequences: Sequence[Hashable], states: torch.Tensor) -> None:
        """One decode step of each of ``sequences``: row i of ``states[n, H]`` belongs to ``sequences[i]``.

        Raises:
            ValueError: not as many rows as sequences, or a sequence twice; else as ``add``.
            TypeError: as ``add``.
        """
        if states.dim() != 2 or states.shape[0] != len(sequences):
            raise ValueError(f"{len(sequences)} sequences, but states {tuple(states.shape)}")
        if len(set(sequences)) != len(sequences):
            raise ValueError("a sequence occurs twice in one step")
        check_type(states)
        for sequence in sequences:  # all or none
            self._check_kind(self._entry(sequence), states)
        for sequence, row in zip(sequences, states, strict=True):
            self.add(sequence, row)

    def finish(self, sequence: Hashable) -> list[ProofPoly]:
        """End a sequence: all its proofs in order, the last of a short chunk where steps remain; waits for the pool.

        A sequence without any step gives none.
        """
        with self._lock:
            entry = self._sequences.pop(sequence, None)
        if entry is None:
            return []
        place = entry.steps % self._size
        if place:
            self._build(entry, entry.window[:place], entry.window)
        return [future.result() for future in entry.proofs]

    def discard(self, sequence: Hashable) -> None:
        """Forget a sequence that was aborted."""
        with self._lock:
            entry = self._sequences.pop(sequence, None)
            if entry is not None and entry.window is not None and len(self._spare) < self._spares:
                self._spare.append(entry.window)

    def suspend(self, sequence: Hashable) -> Suspended:
        """Set a sequence aside and forget it here; waits for its proofs.

        Raises:
            KeyError: no such sequence.
        """
        with self._lock:
            entry = self._sequences.pop(sequence)
        place = entry.steps % self._size
        window = entry.window[:place].to("cpu", copy=True) if place else torch.empty(0, 0)
        proofs = tuple(future.result().to_bytes() for future in entry.proofs)
        return Suspended(proofs, entry.steps, window, not entry.prefilled)

    def resume(self, sequence: Hashable, state: Suspended) -> None:
        """Go on with a sequence that was set aside, here or in another process.

        Raises:
            ValueError: the sequence is already here, ``state`` does not fit this builder's chunk size, or a proof in
                it is none.
            TypeError: its window is not of one of the three types.
        """
        full, rest = divmod(state.steps, self._size)
        if state.steps < 0 or state.window.dim() != 2:
            raise ValueError(f"no sequence has {state.steps} steps and a window {tuple(state.window.shape)}")
        if len(state.proofs) != full + (not state.skip_prefill) or state.window.shape[0] != rest:
            raise ValueError(f"the suspended sequence was not cut into chunks of {self._size}")
        if rest:
            check_type(state.window)
        proofs = [_done(ProofPoly.from_bytes(proof)) for proof in state.proofs]
        entry = _Sequence(proofs, prefilled=not state.skip_prefill, steps=full * self._size)
        with self._lock:
            if self._sequences.setdefault(sequence, entry) is not entry:
                raise ValueError(f"sequence {sequence!r} is already here")
        if rest:
            self.add(sequence, state.window)

    def steps(self, sequence: Hashable) -> int:
        """Decode steps seen of a sequence; 0 for an unknown one."""
        with self._lock:
            entry = self._sequences.get(sequence)
        return 0 if entry is None else entry.steps

    def close(self) -> None:
        """Wait for the pool and stop it. Unfinished sequences are forgotten, and no others are taken."""
        self._closed = True
        self._pool.shutdown(wait=True)
        self._sequences.clear()
        self._spare.clear()

    def __enter__(self) -> Self:
        """Use as a context."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def _entry(self, sequence: Hashable) -> _Sequence:
        """A sequence that is here, or a new one, which is not here before it is kept."""
        if self._closed:
            raise RuntimeError("the builder is closed")
        return self._sequences.get(sequence) or _Sequence()

    def _keep(self, sequence: Hashable, entry: _Sequence) -> None:
        with self._lock:
            self._sequences[sequence] = entry

    @staticmethod
    def _check_kind(entry: _Sequence, rows: torch.Tensor) -> None:
        if entry.kind is None:
            return
        dtype, channels = entry.kind
        if rows.dtype is not dtype:
            raise TypeError(f"the sequence holds {dtype}, not {rows.dtype}")
        if rows.shape[1] != channels:
            raise ValueError(f"the sequence's rows have {channels} channels, not {rows.shape[1]}")

    def _window(self, entry: _Sequence, rows: torch.Tensor) -> torch.Tensor:
        if entry.window is not None:
            window: torch.Tensor = entry.window
            return window
        shape = (self._size, rows.shape[1])
        with self._lock:
            for place, spare in enumerate(self._spare):
                if spare.shape == shape and spare.dtype is rows.dtype and spare.device == rows.device:
                    entry.window = self._spare.pop(place)
                    return entry.window
        entry.window = torch.empty(shape, dtype=rows.dtype, device=rows.device)
        return entry.window

    def _build(self, entry: _Sequence, chunk: torch.Tensor, window: torch.Tensor | None) -> None:
        written = _written(chunk)
        if not self._room.acquire(blocking=False):
            try:
                entry.proofs.append(_done(self._proof(chunk, window, written)))
            except Exception as error:
                entry.proofs.append(_failed(error))
            return
        try:
            future = self._pool.submit(self._proof, chunk, window, written)
        except BaseException:
            self._room.release()
            raise
        future.add_done_callback(lambda _: self._room.release())
        entry.proofs.append(future)

    def _proof(self, chunk: torch.Tensor, window: torch.Tensor | None, written: Iterable[Any]) -> ProofPoly:
        for event in written:
            event.synchronize()
        proof = proof_of(pick(chunk, self._topk))
        if window is not None:
            with self._lock:
                if len(self._spare) < self._spares:
                    self._spare.append(window)
        return proof


def _written(chunk: torch.Tensor) -> tuple[Any, ...]:
    """What a pool thread must wait for before it reads an accelerator's memory."""
    if not chunk.is_cuda:
        return ()
    event = torch.cuda.Event()
    event.record()
    return (event,)


def _done(proof: ProofPoly) -> "Future[ProofPoly]":
    future: Future[ProofPoly] = Future()
    future.set_result(proof)
    return future


def _failed(error: Exception) -> "Future[ProofPoly]":
    future: Future[ProofPoly] = Future()
    future.set_exception(error)
    return future
