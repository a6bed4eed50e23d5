"""Times of integer matmuls next to jax, torch and onnxruntime, on one thread.

Out: a table with the least CPU time of several rounds in milliseconds, all contenders in each
round, and Nova's time as a share of each other one. Results are compared with numpy's first:
Nova's must be exact, a peer that is not is marked `(inexact)`. onnxruntime saturates sums of two
products to 16 bits on CPUs without VNNI.

    taskset -c 1 env NOVA_THREADS=1 OMP_NUM_THREADS=1 python benchmarks/int8.py --rounds 10
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import nova

Call = Callable[[], np.ndarray]

# (rows, columns, depth, types): squares, and the few rows of a batch of tokens.
CASES = (
    *((1024, 1024, 1024, "i1", "i1"), (1024, 1024, 1024, "u1", "i1"), (512, 512, 512, "i1", "i1")),
    *((16, 4096, 1024, "i1", "i1"), (1, 4096, 1024, "i1", "i1")),
)


def contenders(a: np.ndarray, b: np.ndarray) -> dict[str, Call]:
    """The matmul of two matrices of bytes with a result in i32, by each library that has it."""
    calls: dict[str, Call] = {}
    ours = nova.jit(nova.wide_matmul)
    calls["Nova"] = lambda: np.asarray(ours(a, b))
    calls["jax"] = _jax(a, b)
    calls["torch"] = _torch(a, b)
    calls["onnxruntime"] = _onnxruntime(a, b)
    return calls


def _jax(a: np.ndarray, b: np.ndarray) -> Call:
    import jax
    import jax.numpy as jnp

    def product(x: Any, y: Any) -> Any:
        # Types of one sign only: others are widened first.
        if x.dtype != y.dtype:
            x, y = x.astype(jnp.int16), y.astype(jnp.int16)
        return jax.lax.dot(x, y, preferred_element_type=jnp.int32)

    compiled, arrays = jax.jit(product), (jnp.asarray(a), jnp.asarray(b))
    return lambda: np.asarray(compiled(*arrays).block_until_ready())


def _torch(a: np.ndarray, b: np.ndarray) -> Call:
    import torch

    torch.set_num_threads(1)
    left, right = torch.from_numpy(a), torch.from_numpy(b)
    if a.dtype == b.dtype == np.int8:
        return lambda: torch._int_mm(left, right).numpy()
    return lambda: (left.int() @ right.int()).numpy()


def _onnxruntime(a: np.ndarray, b: np.ndarray) -> Call:
    import onnx
    import onnxruntime

    helper = onnx.helper
    element = helper.np_dtype_to_tensor_dtype
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["a", "b"], ["c"])],
        "graph",
        [helper.make_tensor_value_info(n, element(x.dtype), x.shape) for n, x in (("a", a),)],
        [helper.make_tensor_value_info("c", onnx.TensorProto.INT32, (len(a), b.shape[1]))],
        [onnx.numpy_helper.from_array(b, "b")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return lambda: np.asarray(session.run(None, {"a": a})[0])


def least_times(calls: dict[str, Call], rounds: int) -> dict[str, float]:
    """The least CPU time of each, in milliseconds."""
    times = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            begin = time.process_time()
            call()
            times[name] = min(times[name], (time.process_time() - begin) * 1e3)
    return times


def operand(shape: tuple[int, int], dtype: str) -> np.ndarray:
    info = np.iinfo(dtype)
    return np.random.default_rng(0).integers(info.min, info.max, shape, dtype, endpoint=True)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args(words)
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    titles: list[str] = []
    for rows, columns, depth, left, right in CASES:
        a, b = operand((rows, depth), left), operand((depth, columns), right)
        calls = contenders(a, b)
        expected = a.astype(np.int32) @ b.astype(np.int32)
        assert np.array_equal(calls["Nova"](), expected)
        inexact = [n for n, call in calls.items() if not np.array_equal(call(), expected)]
        times = least_times(calls, options.rounds)
        if not titles:
            titles = ["matmul", *(f"{n} ms" for n in times), *(f"Nova / {n}" for n in times)]
            titles.remove("Nova / Nova")
            print(f"| {' | '.join(titles)} |\n{'|---' * len(titles)}|")
        ratios = [times["Nova"] / t for n, t in times.items() if n != "Nova"]
        dtypes = {"i1": "i8", "u1": "u8"}
        title = f"{rows}x{columns}x{depth} {dtypes[left]} {dtypes[right]}"
        marks = dict.fromkeys(inexact, " (inexact)")
        numbers = [f"{t:.3f}{marks.get(n, '')}" for n, t in times.items()]
        numbers += [f"{r:.2f}" for r in ratios]
        print(f"| {' | '.join([title, *numbers])} |", flush=True)


if __name__ == "__main__":
    main()
