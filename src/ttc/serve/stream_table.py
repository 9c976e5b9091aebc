"""The streams in memory: a bounded number, the least recently used one saved to disk to make room."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

from ttc.serve.request_images import RequestError
from ttc.serve.served_stream import ServedStream, log


class StreamTable:
    """Opens streams when they are first used, and closes them when others need the room.

    All methods run on one event loop; opening and saving happen on a thread, so that other streams do not wait.

    Args:
        open_stream: Builds the stream of a name, with what was saved of it.
        limit: Streams in memory.
    """

    def __init__(self, open_stream: Callable[[str], ServedStream], limit: int) -> None:
        self._open_stream, self.limit = open_stream, limit
        self.live: OrderedDict[str, ServedStream] = OrderedDict()
        self._opening: dict[str, asyncio.Task[None]] = {}
        self._closing: dict[str, asyncio.Task[None]] = {}
        self.opened = self.evicted = 0
        self.closed = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ttc-streams")

    @asynccontextmanager
    async def use(self, name: str) -> AsyncIterator[ServedStream]:
        """Yield the stream of a name, which stays in memory until the block ends.

        Raises:
            RequestError: If every stream in memory is busy, or the server is stopping.
            TTCError: If the saved stream cannot be restored.
        """
        while (stream := self.live.get(name)) is None:
            if self.closed:
                raise RequestError(503, "the server is stopping", retry_after=5)
            if name in self._closing:
                await asyncio.wait([self._closing[name]])  # its last save must be complete before it is read
                continue
            if name not in self._opening:
                self._start_opening(name)
            await asyncio.shield(self._opening[name])
        self.live.move_to_end(name)
        stream.users += 1
        try:
            yield stream
        finally:
            stream.users -= 1

    def discard(self, stream: ServedStream) -> None:
        """Forget a stream whose thread has failed; the next request restores the last save."""
        if self.live.get(stream.name) is stream:
            del self.live[stream.name]

    async def close(self) -> list[str]:
        """Save and stop every stream.

        Returns:
            What could not be saved, in words.
        """
        self.closed = True
        await asyncio.gather(*self._opening.values(), return_exceptions=True)
        problems = []
        loop = asyncio.get_running_loop()
        for name, stream in self.live.items():
            try:
                await loop.run_in_executor(self._thread, stream.close)
            except Exception as error:  # the others are saved all the same
                problems.append(f"the stream {name} cannot be saved: {error}")
        self.live.clear()
        self._thread.shutdown()
        return problems

    def _start_opening(self, name: str) -> None:
        victim = None
        if len(self.live) + len(self._opening) >= self.limit:
            victim = next((stream for stream in self.live.values() if not stream.users), None)
            if victim is None:
                raise RequestError(429, f"all {self.limit} streams in memory are busy: try again later", retry_after=1)
            del self.live[victim.name]
        task = asyncio.get_running_loop().create_task(self._exchange(victim, name))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # requests that wait report it
        self._opening[name] = task
        if victim is not None:
            self._closing[victim.name] = task

    async def _exchange(self, victim: ServedStream | None, name: str) -> None:
        """Close a stream, if one has to make room, then open another; a stream that cannot be saved stays."""
        loop = asyncio.get_running_loop()
        try:
            if victim is not None:
                try:
                    await loop.run_in_executor(self._thread, victim.close)
                except Exception as error:  # torch and safetensors have errors of their own for a full disk
                    log.error("the stream %s cannot be saved and stays in memory: %s", victim.name, error)
                    self.live[victim.name] = victim
                    raise RequestError(
                        503, "another stream cannot be saved to make room; the server's log says why"
                    ) from error
                self.evicted += 1
            self.live[name] = await loop.run_in_executor(self._thread, self._open_stream, name)
            self.opened += 1
        finally:
            del self._opening[name]
            if victim is not None:
                del self._closing[victim.name]
