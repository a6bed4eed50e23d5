"""ONNX models made by hand, and how onnxruntime and OpenVINO run them.

A workload gives nodes over named arrays: those in `inputs` change from call to call, those in
`constants` are weights, which both runtimes prepare when they load a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from harness.case import THREADS, Case

OPSET = 20
Node = tuple[str, Sequence[str], str] | tuple[str, Sequence[str], str, Mapping[str, Any]]
"""An op, the names of its operands, the name of its result (several with spaces in between), and
its attributes."""


def model_of(
    nodes: Sequence[Node],
    inputs: Mapping[str, np.ndarray],
    output: str,
    constants: Mapping[str, np.ndarray] | None = None,
) -> bytes:
    """A model of one f32 result."""
    from onnx import TensorProto, helper, numpy_helper, shape_inference

    graph = helper.make_graph(
        [
            helper.make_node(op, list(operands), result.split(), **dict(*attributes))
            for op, operands, result, *attributes in nodes
        ],
        "benchmark",
        [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(a.dtype), list(a.shape)
            )
            for name, a in inputs.items()
        ],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(a, name) for name, a in (constants or {}).items()],
    )
    opset = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=10)
    return shape_inference.infer_shapes(model, strict_mode=True).SerializeToString()


def onnxruntime_case(
    model: bytes, inputs: Mapping[str, np.ndarray], *, reused: bool = False
) -> Case:
    """`session.run` on numpy arrays; with `reused` bound to the same output at every call."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    if not reused:
        return Case(session.run, [None, dict(inputs)])
    (result,) = session.run(None, dict(inputs))
    (node,) = session.get_outputs()
    value = onnxruntime.OrtValue.ortvalue_from_numpy(result)
    binding = session.io_binding()
    for name, array in inputs.items():
        binding.bind_cpu_input(name, array)
    binding.bind_ortvalue_output(node.name, value)
    return Case(session.run_with_iobinding, [binding], read=lambda _: [value.numpy().copy()])


def openvino_case(model: bytes, inputs: Mapping[str, np.ndarray]) -> Case:
    """A request on tensors that share the memory of numpy arrays; its output is always reused.

    In f32: on some machines the default is bf16.
    """
    import openvino

    core = openvino.Core()
    compiled = core.compile_model(
        core.read_model(model, b""),
        "CPU",
        {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": THREADS,
            "INFERENCE_PRECISION_HINT": "f32",
        },
    )
    request = compiled.create_infer_request()
    for name, array in inputs.items():
        request.set_tensor(name, openvino.Tensor(array, shared_memory=True))
    return Case(request.infer, read=lambda _: [request.get_output_tensor(0).data.copy()])
