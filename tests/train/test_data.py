"""Batches: what order they come in, whose memory they are, and the thread that makes them."""

from __future__ import annotations

import gc
import threading
import time

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nova
import nova.data
from nova.data import Batches, run_ahead
from nova.errors import DataError


@pytest.fixture(params=["thread", "direct"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Batches of any size are gathered on a thread, or none are."""
    monkeypatch.setattr(nova.data, "_WORTH_A_THREAD", 0 if request.param == "thread" else 1 << 60)
    return request.param


def threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == "nova-data"]


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    gc.collect()
    assert not threads()


def rows(n: int) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(n * 3, dtype=np.float32).reshape(n, 3), np.arange(n)


def test_every_row_comes_once_an_epoch(way):
    x, y = rows(50)
    batches = Batches(x, y, batch_size=8, drop_last=False)
    for _ in range(3):
        given = [(a.copy(), b.copy()) for a, b in batches]
        assert [len(b) for _, b in given] == [8] * 6 + [2] and len(batches) == 7
        order = np.concatenate([b for _, b in given])
        np.testing.assert_array_equal(np.sort(order), y)
        np.testing.assert_array_equal(np.concatenate([a for a, _ in given]), x[order])
    assert batches.position == (3, 0)


def test_order_follows_from_seed_and_epoch(way):
    _, y = rows(40)

    def order(seed, epochs=2):
        return [b.tolist() for (b,) in Batches(y, batch_size=10, seed=seed).stream(epochs)]

    assert order(1) == order(1) != order(2)
    assert order(1)[:4] != order(1)[4:]
    assert Batches(y, batch_size=10, seed=1).order(1).tolist() == [
        n for b in order(1)[4:] for n in b
    ]


def test_order_is_the_same_in_every_version():
    """Another one would make a resumed run differ from the one it continues."""
    order = Batches(np.zeros(8), batch_size=2, seed=5).order(3)
    assert order.tolist() == [4, 1, 5, 3, 2, 0, 6, 7]


def test_any_position_continues_exactly(way):
    _, y = rows(23)
    full = [b.tolist() for (b,) in Batches(y, batch_size=5, seed=3).stream(3)]
    for at in range(len(full)):
        batches = Batches(y, batch_size=5, seed=3)
        batches.position = divmod(at, 4)
        assert [b.tolist() for (b,) in batches.stream(3)] == full[at:]


def test_a_broken_off_loop_goes_on_behind_the_last_batch_given(way):
    _, y = rows(20)
    full = [b.tolist() for (b,) in Batches(y, batch_size=5)]
    batches = Batches(y, batch_size=5)
    for _ in batches:
        break
    assert batches.position == (0, 1)
    assert [b.tolist() for (b,) in batches] == full[1:]


def test_without_shuffling_nothing_is_copied():
    x, y = rows(10)
    for i, (a, b) in enumerate(Batches(x, y, batch_size=4, shuffle=False, drop_last=False)):
        assert np.shares_memory(a, x) and np.shares_memory(b, y)
        np.testing.assert_array_equal(a, x[4 * i : 4 * i + 4])
    assert not threads()


def test_batches_that_are_kept_stay_as_they_are(way):
    x, y = rows(64)
    retained = list(Batches(x, y, batch_size=4).stream(3))
    again = Batches(x, y, batch_size=4)
    for (a, b), (c, d) in zip(retained, again.stream(3), strict=True):
        np.testing.assert_array_equal(a, c)
        np.testing.assert_array_equal(b, d)


def test_a_view_of_a_batch_keeps_it(way):
    x, _ = rows(64)
    views, copies = [], []
    for (a,) in Batches(x, batch_size=4).stream(3):
        views.append(a[1:3, ::2].T)
        copies.append(views[-1].copy())
        del a
    for view, copy in zip(views, copies, strict=True):
        np.testing.assert_array_equal(view, copy)


def test_buffers_are_used_again(way):
    x, _ = rows(400)
    addresses = {a.__array_interface__["data"][0] for (a,) in Batches(x, batch_size=4).stream(5)}
    assert len(addresses) <= 5


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, bool, np.uint8, np.int64, np.float16])
def test_types(way, dtype):
    x = (np.arange(60).reshape(20, 3) % 2).astype(dtype)
    (given,) = next(iter(Batches(x, batch_size=20, seed=1)))
    assert given.dtype == x.dtype
    assert given.tobytes() == x[Batches(x, batch_size=20, seed=1).order(0)].tobytes()


def test_strided_and_foreign_arrays(way):
    torch = pytest.importorskip("torch")
    x = np.arange(120.0).reshape(6, 20)[::2].T
    t = torch.arange(20)
    for a, b in Batches(x, t, batch_size=5):
        np.testing.assert_array_equal(a, x[b])


@pytest.mark.parametrize("prefetch", [0, 1, 5])
def test_prefetch(way, prefetch):
    _, y = rows(30)
    actual = [b.tolist() for (b,) in Batches(y, batch_size=4, prefetch=prefetch).stream(2)]
    assert actual == [b.tolist() for (b,) in Batches(y, batch_size=4).stream(2)]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.integers(1, 50), st.booleans(), st.booleans(), st.integers(0, 3))
def test_sizes(count, size, shuffle, drop_last, epoch):
    y = np.arange(count)
    if drop_last and size > count:
        with pytest.raises(DataError, match=f"{count} rows make no batch of {size}"):
            Batches(y, batch_size=size, drop_last=True)
        return
    batches = Batches(y, batch_size=size, shuffle=shuffle, drop_last=drop_last)
    batches.position = (epoch, 0)
    given = [b.tolist() for (b,) in batches]
    assert len(given) == len(batches)
    expected = batches.order(epoch)[: len(batches) * size if drop_last else None]
    assert [n for b in given for n in b] == expected.tolist()


@pytest.mark.parametrize(
    ("arrays", "options", "message"),
    [
        ((), {}, "no arrays"),
        ((np.zeros((4, 2)), np.zeros(5)), {}, "array 1 has 5 rows, array 0 has 4"),
        ((np.zeros(4), np.float32(1)), {}, "array 1 is one number"),
        ((np.zeros((0, 3)),), {}, "0 rows make no batch of 2"),
        ((np.zeros((0, 3)),), {"drop_last": False}, "0 rows make no batch of 2"),
        ((np.zeros(1),), {}, "1 rows make no batch of 2"),
        ((np.zeros(4),), {"batch_size": 0}, "batch_size is 0"),
        ((np.zeros(4),), {"batch_size": 2.0}, "batch_size is 2.0"),
        ((np.zeros(4),), {"seed": -1}, "seed is -1"),
        ((np.zeros(4),), {"prefetch": True}, "prefetch is True"),
    ],
)
def test_mistakes(arrays, options, message):
    with pytest.raises(DataError, match=message) as caught:
        nova.data.Batches(*arrays, **{"batch_size": 2, **options})
    assert caught.value.where.startswith(__file__)


def test_positions_that_do_not_exist():
    batches = Batches(np.zeros(10), batch_size=3)
    for position in [(0, 3), (0, -1), (-1, 0)]:
        with pytest.raises(DataError, match=f"no batch {position[1]} in epoch {position[0]}"):
            batches.position = position
    assert batches.position == (0, 0) and "epoch 0, batch 0" in repr(batches)


def test_two_loops_at_once(way):
    batches = Batches(np.arange(20), batch_size=2)
    first = iter(batches)
    next(first)
    next(iter(batches))
    with pytest.raises(DataError, match="another loop"):
        next(first)


# --- the thread -----------------------------------------------------------------------------------


def test_the_thread_runs_ahead_and_no_further():
    created = []

    def items():
        for i in range(10):
            created.append(i)
            yield i

    ahead = run_ahead(items(), 3)
    assert next(ahead) == 0
    deadline = time.monotonic() + 10
    while len(created) < 4 and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(0.02)
    assert created == [0, 1, 2, 3]
    assert list(ahead) == list(range(1, 10))
    assert not threads()


def test_closing_early_ends_the_thread(way):
    stream = Batches(np.arange(100), batch_size=2).stream(5)
    next(stream)
    assert len(threads()) == (way == "thread")
    stream.close()
    assert not threads()


def test_leaving_a_loop_ends_the_thread(way):
    for _ in Batches(np.arange(100), batch_size=2):
        break
    gc.collect()
    assert not threads()
    with pytest.raises(ZeroDivisionError):
        for _ in Batches(np.arange(100), batch_size=2):
            1 / 0  # noqa: B018
    gc.collect()
    assert not threads()


def test_an_error_on_the_thread_reaches_the_loop(way, monkeypatch):
    given = 0
    order = Batches.order

    def failing(self, epoch):
        if epoch == 1:
            raise MemoryError("no room for the order")
        return order(self, epoch)

    monkeypatch.setattr(Batches, "order", failing)
    batches = Batches(np.arange(10), batch_size=2)
    with pytest.raises(MemoryError, match="no room"):
        for _ in batches.stream(3):
            given += 1
    assert given == 5 and not threads()
