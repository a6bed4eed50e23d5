"""Names of torch, jax and numpy that Nova has under another name, and how to write them here.

In: a name that an object or a module does not have. Out: the error, with the hint of a table below,
the name that is spelt alike, or the same name in `nova`. Called by `__getattr__` of `Tensor`, of
modules and optimizers, and of the packages.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping

from nova.core.suggest import unknown_name
from nova.errors import UnknownNameError

_TARGET = "programs have a target, tensors have none: nova.jit(f, target='cuda')"
_STEP = (
    "step = nova.train_step(model, loss, optimizer) is one compiled step: step(x, y) computes the "
    "loss and its gradients, and updates the parameters"
)
_SEED = "random functions take a seed, as nova.randn(seed, (2, 3))"

DTYPES = {
    **dict.fromkeys(("float", "float32"), "f32"),
    **dict.fromkeys(("double", "float64"), "f64"),
    **dict.fromkeys(("half", "float16"), "f16"),
    **dict.fromkeys(("int", "int32"), "i32"),
    **dict.fromkeys(("long", "int64"), "i64"),
    **dict.fromkeys(("short", "int16"), "i16"),
    "bfloat16": "bf16",
    "int8": "i8",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "bool": "bool_",
    "cfloat": "complex64",
    "cdouble": "complex128",
    "float8_e4m3fn": "f8e4m3",
    "float8_e5m2": "f8e5m2",
}

PACKAGE: Mapping[str, str] = {
    **{theirs: f"this dtype is nova.{ours}" for theirs, ours in DTYPES.items()},
    **dict.fromkeys(
        ("from_numpy", "as_tensor", "asarray", "array", "FloatTensor", "LongTensor"),
        "write nova.tensor(array)",
    ),
    **dict.fromkeys(
        ("manual_seed", "seed", "set_seed"),
        f"nova.nn.manual_seed(seed) seeds layers; {_SEED}",
    ),
    **dict.fromkeys(("random", "PRNGKey", "Generator"), _SEED),
    **dict.fromkeys(("empty", "empty_like"), "write nova.zeros or nova.zeros_like"),
    **dict.fromkeys(("inference_mode", "enable_grad", "set_grad_enabled"), "write nova.no_grad()"),
    **dict.fromkeys(("numpy", "functional", "F"), "these functions are in nova itself: nova.relu"),
    **dict.fromkeys(("autocast", "amp"), "write nova.train_step(..., precision='bf16')"),
    "randperm": "write nova.permutation(seed, n)",
    "cuda": _TARGET,
    "device_put": "write nova.to_device(array, device)",
    "stop_gradient": "write nova.detach(x)",
    "lax": "loops and branches are nova.scan, nova.fori_loop, nova.while_loop and nova.cond",
    "save": "write model.save(path) for weights, compiled.save(path) for a program",
    "utils": "batches are in nova.data",
    "set_default_dtype": "layers and creators take dtype=",
    "Module": "write nova.nn.Module",
    "Parameter": "write nova.nn.Parameter",
}
TENSOR: Mapping[str, str] = {
    "cuda": _TARGET,
    "cpu": "x.numpy() is the value, an array on the host",
    "tolist": "write x.numpy().tolist()",
    "requires_grad_": "write nova.tensor(array, requires_grad=True)",
    "at": "write nova.index_put(x, (i, j), values), or nova.index_add",
    "block_until_ready": "x.numpy() waits for the value",
    "share_memory_": "processes share arrays of numpy",
    "register_hook": "write x = nova.nn.utils.gradient_hook(x, hook) before x is used",
    "retain_grad": "nova.grad gives the gradients of any tensors",
}
MODULE: Mapping[str, str] = {
    **dict.fromkeys(("cuda", "cpu"), f"{_TARGET}, nova.train_step(..., target='cuda')"),
    "compile": "write nova.jit(model)",
}
OPTIMIZER: Mapping[str, str] = {
    **dict.fromkeys(("step", "zero_grad"), _STEP),
    "param_groups": "options of groups are arguments: SGD([{'params': a, 'lr': 0.1}, ...])",
    "state_dict": "the state is that of the step: step.state_dict()",
    "load_state_dict": "the state is that of the step: step.load_state_dict(state)",
}
OPTIM: Mapping[str, str] = {
    "SparseAdam": "gradients are dense: write nova.optim.Adam",
    "MultiplicativeLR": "a rate is a function of the step: write nova.optim.LambdaLR(lr, f) with "
    "the product of the factors, or ExponentialLR for a constant one",
    "lr_scheduler": "schedules are in nova.optim itself: nova.optim.StepLR(lr, 30)",
    "swa_utils": "write SGD(params, lr, ema=0.999): the state has the averages",
}
NN: Mapping[str, str] = {
    "functional": "functions are in nova itself: nova.relu(x)",
    "DataParallel": "a program runs on one device",
}
NN_UTILS: Mapping[str, str] = {
    **dict.fromkeys(
        ("clip_grad_norm_", "clip_grad_value_", "clip_grad_norm", "clip_grad_value"),
        "gradients are clipped by the optimizer: SGD(params, lr, clip_norm=1.0)",
    ),
    **{
        name: f"write nova.nn.utils.parametrizations.{name}(module)"
        for name in ("weight_norm", "spectral_norm")
    },
    **dict.fromkeys(
        ("remove_weight_norm", "remove_spectral_norm"),
        "write nova.nn.utils.parametrize.remove_parametrizations(module, 'weight')",
    ),
}
INIT: Mapping[str, str] = {}
LINALG: Mapping[str, str] = {
    **dict.fromkeys(("eig", "eigvals"), "symmetric matrices have eigh and eigvalsh, others svd"),
    "inverse": "write nova.linalg.inv",
}
DATA: Mapping[str, str] = {
    "DataLoader": "nova.fit and a loop take any iterable of batches, torch's DataLoader too",
}


def no_attribute(
    owner: str, name: str, names: Iterable[str], hints: Mapping[str, str]
) -> UnknownNameError:
    """The error for `owner.name`; `names` are its own, and `hints` is one of the tables."""
    names = list(names)
    hint = hints.get(name)
    if hint is None and name.endswith("_") and name[:-1] in names and not name.startswith("_"):
        hint = f"values do not change in place: {name[:-1]!r} returns the new value"
    if hint is None and owner != "module 'nova'" and name.lower() not in map(str.lower, names):
        package = sys.modules.get("nova")
        if name in getattr(package, "__all__", ()):
            hint = f"did you mean nova.{name}?"
    return unknown_name(owner, name, names, hint)
