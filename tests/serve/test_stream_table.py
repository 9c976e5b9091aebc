"""Which streams are in memory, when they are saved, and what happens when that fails."""

import asyncio
import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import ttc
from ttc import TTCError
from ttc.serve.request_images import RequestError
from ttc.serve.serve_settings import ServeSettings
from ttc.serve.served_stream import ServedStream
from ttc.serve.stream_folder import StreamFolder
from ttc.serve.stream_table import StreamTable

Open = Callable[[str], ServedStream]


@pytest.fixture
def open_stream(model: "ttc.models.StandardizedModel", tmp_path: Path) -> Open:
    settings = ServeSettings("mine")
    return lambda name: ServedStream(name, ttc.adapt(model, "source"), StreamFolder(tmp_path / name), settings)


def test_the_least_recently_used_makes_room(open_stream: Open) -> None:
    async def scenario() -> list[str]:
        table = StreamTable(open_stream, limit=2)
        for name in ("a", "b", "a", "c"):
            async with table.use(name) as stream:
                assert stream.name == name
        live = list(table.live)
        assert await table.close() == []
        return live

    assert asyncio.run(scenario()) == ["a", "c"]


def test_a_stream_on_disk_is_not_in_memory_any_more(open_stream: Open) -> None:
    async def scenario() -> None:
        table = StreamTable(open_stream, limit=1)
        known: list[weakref.ref[Any]] = []
        for name in "abcd":
            async with table.use(name) as stream:
                await stream.predict(torch.rand(2, 3, 8, 8))
                known += [weakref.ref(stream), weakref.ref(stream.predictor)]
            del stream
        gc.collect()
        assert sum(reference() is not None for reference in known) == 2  # the last stream and its adapter
        await table.close()

    asyncio.run(scenario())


def test_requests_for_a_new_stream_share_its_opening(open_stream: Open) -> None:
    async def use(table: StreamTable, name: str) -> ServedStream:
        async with table.use(name) as stream:
            await asyncio.sleep(0.01)
            return stream

    async def scenario() -> None:
        table = StreamTable(open_stream, limit=2)
        streams = await asyncio.gather(*(use(table, "ab"[i % 2]) for i in range(20)))
        assert len(set(map(id, streams))) == table.opened == 2
        await table.close()

    asyncio.run(scenario())


def test_streams_that_take_turns_are_never_open_twice(open_stream: Open) -> None:
    """With room for one stream, requests for three wait for each other or get 429, and no state is read too early."""

    async def use(table: StreamTable, name: str) -> int:
        try:
            async with table.use(name):
                await asyncio.sleep(0)
                return 200
        except RequestError as error:
            return error.status

    async def scenario() -> None:
        table = StreamTable(open_stream, limit=1)
        for _ in range(5):
            statuses = await asyncio.gather(*(use(table, "abc"[i % 3]) for i in range(9)))
            assert set(statuses) <= {200, 429}
            assert len(table.live) <= 1
        assert await use(table, "a") == 200
        await table.close()

    asyncio.run(scenario())


def test_a_stream_that_cannot_be_saved_stays_in_memory(open_stream: Open, tmp_path: Path) -> None:
    async def scenario() -> None:
        table = StreamTable(open_stream, limit=1)
        async with table.use("a") as stream:
            stream.images += 1  # something to save
        (tmp_path / "a").write_text("in the way")
        with pytest.raises(RequestError, match="cannot be saved"):
            async with table.use("b"):
                pass
        assert list(table.live) == ["a"]
        (tmp_path / "a").unlink()
        async with table.use("b"):
            pass
        assert (tmp_path / "a" / "stream.json").exists()
        await table.close()

    asyncio.run(scenario())


def test_what_cannot_be_opened_or_saved_is_reported(open_stream: Open, tmp_path: Path) -> None:
    async def scenario() -> list[str]:
        table = StreamTable(open_stream, limit=2)
        (tmp_path / "bad").mkdir()
        (tmp_path / "bad" / "stream.json").write_text("{")
        with pytest.raises(TTCError, match="damaged"):
            async with table.use("bad"):
                pass
        for name in ("a", "b"):
            async with table.use(name) as stream:
                stream.images += 1
        (tmp_path / "a").write_text("in the way")
        problems = await table.close()
        with pytest.raises(RequestError, match="stopping"):
            async with table.use("c"):
                pass
        return problems

    (problem,) = asyncio.run(scenario())
    assert problem.startswith("the stream a cannot be saved")
    assert (tmp_path / "b" / "stream.json").exists()
