"""Scripts that reproduce a failure: a plan, its arguments, and the check that fails.

In: a reduced program. Out: a Python file that needs only Nova, with small arrays written
inline and large ones in an `.npz` next to it. Called by `minimize`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from nova.core.dtypes import FLOATS_8, bf16, dtype
from nova.core.settings import Settings
from nova.debug.plan_transforms import Program
from nova.plan import print_plan

_MOST_ELEMENTS = 64
# numpy has no names for them.
_OF_ML_DTYPES = (bf16, *FLOATS_8)

_TEXT = '''"""{title}

Written by nova.debug.minimize. Run it: it raises the error again, or says that all is well.
"""

{imports}

import nova
{more}
PLAN = """
{plan}"""

{arrays}

with nova.knobs.override(
    cache=False, check={check!r}, serial_work={serial_work}, tile_work={tile_work}
):
    {call}
print("the program agrees with the oracle")
'''


def write_script(
    path: Path,
    program: Program,
    settings: Settings,
    title: str,
    mode: str,
    device: str | None = None,
) -> None:
    """Write the script. `mode` is `1`, `nan`, or `gradient` for the vjp columns of the ops.

    `device` is where the program runs, if that is not the CPU.
    """
    count = len(program.plan.signature.inputs)
    large = any(a.size > _MOST_ELEMENTS for a in program.arrays)
    names = [f"a{i}" for i in range(len(program.arrays))]
    lines = [_assignment(n, a) for n, a in zip(names, program.arrays, strict=True)]
    if large:
        lines.insert(0, f'DATA = np.load(Path(__file__).with_name("{path.stem}.npz"))')
        stored: dict[str, Any] = {
            n: _storable(a)
            for n, a in zip(names, program.arrays, strict=True)
            if a.size > _MOST_ELEMENTS
        }
        np.savez(path.with_suffix(".npz"), **stored)
    keywords = f"target={settings.target!r}, fast_math={settings.fast_math}"
    if device is not None and device.startswith("sim"):
        keywords += ', run_mode="sim"'
    if mode == "gradient":
        call = f"check_plan(PLAN, [{', '.join(names)}], {keywords}, gradients=True)"
    else:
        inputs, params = ", ".join(names[:count]), ", ".join(names[count:])
        call = f"nova.compile_plan(parse_plan(PLAN), {keywords}).run([{inputs}], [{params}])"
    path.write_text(
        _TEXT.format(
            title=title.replace('"""', "'''").replace("\\", "/"),
            imports="from pathlib import Path\n\nimport numpy as np"
            if large
            else "import numpy as np",
            # A plan, not its text: it is compiled in the process that a debugger is attached to.
            more="from nova.debug import check_plan\n"
            if mode == "gradient"
            else "from nova.plan import parse_plan\n",
            plan=print_plan(program.plan).replace("\\", "/"),
            arrays="\n".join(lines),
            check="off" if mode == "gradient" else mode,
            serial_work=settings.serial_work,
            tile_work=settings.tile_work,
            call=call,
        )
    )


def _assignment(name: str, array: np.ndarray) -> str:
    type_ = dtype(array.dtype)
    if array.size > _MOST_ELEMENTS:
        view = f".view(nova.{type_}.numpy)" if type_ in _OF_ML_DTYPES else ""
        return f'{name} = DATA["{name}"]{view}'
    # Text of floats parses to the same bits, in every dtype: the f64 of its value is exact.
    values = np.asarray(array, np.float64).tolist() if type_.is_float else array.tolist()
    text = str(values).replace("nan", "np.nan").replace("inf", "np.inf")
    spelled = f"nova.{type_}.numpy" if type_ in _OF_ML_DTYPES else f'"{type_.numpy}"'
    reshaped = f".reshape({array.shape})" if array.size == 0 else ""
    return f"{name} = np.array({text}, {spelled}){reshaped}"


def _storable(array: np.ndarray) -> np.ndarray:
    return array.view(f"u{array.itemsize}") if dtype(array.dtype) in _OF_ML_DTYPES else array
