"""An event loop on virtual time: nothing waits, the clock jumps to whatever happens next.

Whatever runs in asyncio runs on it unchanged, as long as it asks the loop for the time (``loop.time()``,
``asyncio.sleep``, ``asyncio.timeout``, :func:`protocol.clock.monotonic`) and for threads (``asyncio.to_thread``, which
runs in place here). There are no sockets, pipes, signals or other threads on it.

Each callback belongs to the *owner* that the context variable :data:`OWNER` names when it was scheduled; tasks that an
owner starts inherit it. The callbacks of an owner can be held, as those of a stopped process are.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar
from typing import Any, NoReturn, Protocol

START = 1000.0
"""What the clock shows when a loop begins; monotonic clocks of real machines do not begin at zero either."""

_MIN_CANCELLED = 100


class Owner(Protocol):
    """Whatever callbacks belong to."""

    @property
    def disk_delay(self) -> float:
        """Seconds that work handed to a thread takes."""
        ...


OWNER: ContextVar[Owner | None] = ContextVar("owner", default=None)
"""Whom the running callback belongs to; None for the test itself."""


class Standstill(RuntimeError):
    """Nothing is left that could ever happen, and something is still waited for."""


class Piece:
    """A callback with one argument at a virtual time: what ``asyncio.TimerHandle`` is, at a quarter of its cost."""

    __slots__ = ("_argument", "_callback", "_cancelled", "_context", "_loop", "_scheduled")

    def __init__(
        self, callback: Callable[[Any], object], argument: Any, context: Context, loop: "VirtualLoop"
    ) -> None:
        self._callback: Callable[[Any], object] | None = callback
        self._argument = argument
        self._context = context
        self._loop = loop
        self._cancelled = False
        self._scheduled = True

    def cancel(self) -> None:
        """Lets it not happen."""
        if not self._cancelled:
            self._cancelled = True
            self._callback = self._argument = None
            if self._scheduled:
                self._loop._timer_handle_cancelled(self)

    def _run(self) -> None:
        assert self._callback is not None, "a cancelled piece does not run"
        try:
            self._context.run(self._callback, self._argument)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            told = {"message": f"Exception in callback {self._callback!r}", "exception": error}
            self._loop.call_exception_handler(told)


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop whose time passes only when there is nothing left to do at the present moment."""

    _ready: "deque[Any]"
    _stopping: bool

    def __init__(self) -> None:
        super().__init__()
        self._now = START
        self._timers: list[tuple[float, int, Any]] = []
        self._count = 0
        self._cancelled_timers = 0
        self._held: dict[Owner, list[Any]] = {}
        self.callbacks = 0
        """How many callbacks have run."""
        self._failure: BaseException | None = None

    def time(self) -> float:
        """Virtual seconds, from :data:`START` on."""
        return self._now

    # --- whose callbacks do not run ------------------------------------------------------------------------------

    def hold(self, owner: Owner) -> None:
        """Keeps an owner's callbacks back until :meth:`release`; those of them whose time comes are kept in order."""
        self._held.setdefault(owner, [])

    def release(self, owner: Owner) -> None:
        """Lets an owner's callbacks run again, those that were kept back at once."""
        self._ready.extend(self._held.pop(owner, ()))

    def release_all(self) -> None:
        """Lets everybody's callbacks run."""
        for owner in list(self._held):
            self.release(owner)

    def fail(self, error: BaseException) -> None:
        """Ends whatever runs on the loop with an error, past every ``except`` in it."""
        self._failure = self._failure or error

    # --- what asyncio asks of a loop -----------------------------------------------------------------------------

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Runs a callback at a virtual time; of several at one time the first to be scheduled runs first."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        timer._scheduled = True  # type: ignore[attr-defined]
        self._count += 1
        heapq.heappush(self._timers, (when, self._count, timer))
        return timer

    def at(self, when: float, callback: Callable[[Any], object], argument: Any, context: Context) -> Piece:
        """Runs a callback with one argument at a virtual time, in just that context."""
        piece = Piece(callback, argument, context, self)
        self._count += 1
        heapq.heappush(self._timers, (when, self._count, piece))
        return piece

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Runs a callback after virtual seconds."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> "asyncio.Future[Any]":
        """Runs blocking work in place, after the time that its owner's disk takes."""
        future = self.create_future()
        owner = OWNER.get()

        def perform() -> None:
            if future.cancelled():
                return
            try:
                result = func(*args)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        delay = 0.0 if owner is None else owner.disk_delay
        if delay > 0:
            self.call_later(delay, perform)
        else:
            self.call_soon(perform)
        return future

    def _timer_handle_cancelled(self, handle: Any) -> None:
        self._cancelled_timers += 1
        if self._cancelled_timers > max(_MIN_CANCELLED, len(self._timers) // 2):
            self._timers = [entry for entry in self._timers if not entry[2]._cancelled]
            heapq.heapify(self._timers)
            self._cancelled_timers = 0

    def _run_once(self) -> None:
        ready = self._ready
        if not ready and not self._stopping:
            self._advance()
        held = self._held
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            if held:
                kept = held.get(handle._context.get(OWNER))
                if kept is not None:
                    kept.append(handle)
                    continue
            self.callbacks += 1
            handle._run()
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure

    def _advance(self) -> None:
        """Goes to the next moment at which something happens."""
        timers, ready = self._timers, self._ready
        while timers:
            when, _, timer = heapq.heappop(timers)
            timer._scheduled = False
            if timer._cancelled:
                self._cancelled_timers = max(0, self._cancelled_timers - 1)
                continue
            self._now = max(self._now, when)
            ready.append(timer)
            while timers and timers[0][0] <= self._now:
                _, _, timer = heapq.heappop(timers)
                timer._scheduled = False
                ready.append(timer)
            return
        self._stand_still()

    def _stand_still(self) -> NoReturn:
        waiting = sorted(task.get_name() for task in asyncio.all_tasks(self))
        shown = ", ".join(waiting[:10]) + (", …" if len(waiting) > 10 else "")
        raise Standstill(f"Nothing will ever happen again, and these tasks still wait: {shown}.")

    def _process_events(self, event_list: Any) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def close(self) -> None:
        """Forgets everything that was to happen."""
        self._timers.clear()
        self._held.clear()
        super().close()
