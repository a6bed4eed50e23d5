"""`nova inspect`: everything in the file, nothing of it executed; damage is named."""

from __future__ import annotations

import builtins
import dataclasses
import io
import json
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

import nova
from nova.artifact.tables import TaskSpec
from nova.artifact.write import DeviceImage, FileSpec, write_artifact
from nova.compiler.driver import build
from nova.core.settings import Settings
from nova.tools.nova import main
from nova.tools.report import Table, format_age, format_bytes, format_seconds, print_tables

# A kernel that does nothing, which an assembler takes.
PTX = b".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k() { ret; }\n"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two kernels, a constant, a param that is updated in place, and a name that is no text."""
    X = nova.tensor(np.ones((32, 48), "f4"), name="X")
    W = nova.tensor(np.ones((48, 64), "f4"), name="W\x1b[2J")
    y = X @ W + nova.tensor(np.arange(64, dtype="f4"))
    program = nova.compile(
        nova.softmax(y), inputs=[X], params=[W], updates={W: W * 0.5}, target="x86_64"
    )
    path = tmp_path_factory.mktemp("inspect") / "model.nova"
    program.save(path)
    return path


def inspect(path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert main(["inspect", str(path), *options]) == 0
    return capsys.readouterr().out


def test_json_says_everything(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = json.loads(inspect(model, capsys, "--json"))
    data = model.read_bytes()
    assert result["file"] == str(model) and result["nbytes"] == len(data)
    assert result["sha256"] == sha256(data).hexdigest()
    assert result["producer"] == f"nova {nova.__version__}" and result["signed"] is None
    assert [(t["role"], t["name"], t["shape"], t["donated"]) for t in result["signature"]] == [
        ("input", "X", [32, 48], False),
        ("param", "W\x1b[2J", [48, 64], True),
        ("output", "y0", [32, 64], False),
    ]
    assert [t["nbytes"] for t in result["signature"]] == [6144, 12288, 8192]
    (variant,) = result["variants"]
    assert variant["target"] == "x86_64" and variant["fits"] and variant["missing"] == []
    program = nova.load(model)
    assert variant["workspace"] == program.workspace_size
    assert [k["name"] for k in variant["kernels"]] == [k.name for k in program.kernels]
    assert {k["core"] for k in variant["kernels"]} >= {"matrix"}
    assert all(Path(__file__).name in k["location"] for k in variant["kernels"])
    assert len(variant["launches"]) == sum(k["launches"] for k in variant["kernels"])
    assert variant["flops"] >= 2 * 32 * 48 * 64
    assert variant["options"]["fast_math"] == "False"
    assert result["stages"] == list(program.stages) and result["source"] == "plan"
    assert result["arch"] == "x86_64"
    assert result["chosen"] == {"variant": 0, "why": program.why}
    assert set(result["key"]) == {"plan", "target", "options", "compiler", "runtime"}
    for section in result["sections"]:
        part = data[section["offset"] : section["offset"] + section["nbytes"]]
        assert section["sha256"] == sha256(part).hexdigest()
    loaded = {section["name"]: section["loaded"] for section in result["sections"]}
    assert loaded[".text"] and not loaded[".nova.stages"] and ".nova.manifest" in loaded
    assert result["weights"]["kind"] == "none" and result["devices"] == []
    assert inspect(model, capsys, "--json") == inspect(model, capsys, "--json")


def test_text_is_aligned_and_plain(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = inspect(model, capsys)
    assert "\x1b" not in text and "W\\x1b[2J" in text
    lines = text.splitlines()
    assert lines[0] == str(model)
    for title in ("signature", "variants", "kernels for x86_64", "sections", "cache key"):
        assert title in lines
    header = next(line for line in lines if line.startswith("  kernel "))
    first = lines[lines.index(header) + 1]
    end = header.index("flops") + len("flops")
    assert first[:end].split()[-1].isdigit() and first[end : end + 2] == "  "
    assert "updated in place" in text and sha256(model.read_bytes()).hexdigest() in text


def test_stage(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stages = nova.load(model).stages
    for name in stages:
        assert inspect(model, capsys, "--stage", name) == stages[name]
    assert main(["inspect", str(model), "--stage", "lib"]) == 1
    output = capsys.readouterr().err
    assert "no stage 'lib'" in output and "it has plan, nova, linalg" in output


def test_nothing_is_executed(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*args: object) -> None:
        raise AssertionError("code was mapped")

    monkeypatch.setattr("nova.runtime.executor.Executable.__init__", refuse)
    with pytest.raises(AssertionError, match="mapped"):
        nova.load(model)
    assert "signature" in inspect(model, capsys)


def contents_of(target: str) -> FileSpec:
    """What the file of a program with one kernel and a param is made of."""
    X, W = nova.tensor(np.ones((4, 4), "f4"), name="X"), nova.tensor(np.ones(4, "f4"), name="W")
    plan = nova.compile(X + W, inputs=[X], params=[W], target="x86_64").plan
    return build(plan, Settings(target=target), {}).contents


def test_several_variants(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "several.nova"
    contents = contents_of("x86_64")
    (small,) = contents.variants
    wide = dataclasses.replace(
        small, target=dataclasses.replace(small.target, name="wide", features=("no-such",))
    )
    path.write_bytes(write_artifact(dataclasses.replace(contents, variants=(small, wide))))
    result = json.loads(inspect(path, capsys, "--json"))
    assert result["chosen"] == {"variant": 1, "why": "x86_64 of wide, x86_64; wide needs no-such"}
    assert result["chosen"]["why"] == nova.load(path).why
    assert [(v["fits"], v["missing"]) for v in result["variants"]] == [
        (False, ["no-such"]),
        (True, []),
    ]
    assert [v["kernels"][0]["symbol"] for v in result["variants"]] == [
        "kernel_0.wide",
        "kernel_0.x86_64",
    ]
    text = inspect(path, capsys)
    assert "runs here   x86_64 of wide, x86_64; wide needs no-such\n" in text
    rows = [line.split() for line in text.splitlines()]
    assert ["wide", "x86-64", "needs", "no-such"] in [row[:4] for row in rows]
    assert ["x86_64", "x86-64", "taken"] in [row[:3] for row in rows]


def test_code_for_another_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    foreign = "aarch64" if nova.core.targets.parse_target("cpu").arch == "x86_64" else "x86_64"
    path = tmp_path / "foreign.nova"
    path.write_bytes(write_artifact(contents_of(foreign)))
    result = json.loads(inspect(path, capsys, "--json"))
    assert result["chosen"]["variant"] is None and result["arch"] == foreign
    assert result["chosen"]["why"] == f"{foreign} needs a CPU of {foreign}"
    assert f"runs here   nothing: {foreign} needs a CPU of {foreign}\n" in inspect(path, capsys)


def test_tasks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two parts of a launch that run side by side, and one behind both."""
    path = tmp_path / "tasks.nova"
    contents = contents_of("x86_64")
    (variant,) = contents.variants
    kernel = dataclasses.replace(variant.tables.kernels[0], grid=8, tiling=None)
    tasks = (TaskSpec(0, 0, 0, 3, (2,)), TaskSpec(0, 0, 3, 7, (2,)), TaskSpec(0, 2, 7, 8, ()))
    tables = dataclasses.replace(variant.tables, kernels=(kernel,), tasks=tasks)
    variant = dataclasses.replace(variant, tables=tables)
    path.write_bytes(write_artifact(dataclasses.replace(contents, variants=(variant,))))
    (result,) = json.loads(inspect(path, capsys, "--json"))["variants"]
    assert result["task_graph"] == {"tasks": 3, "edges": 2, "levels": 2, "widest": 2}
    assert result["tasks"][0] == {**dataclasses.asdict(tasks[0]), "successors": [2]}
    lines = inspect(path, capsys).splitlines()
    at = lines.index("task graphs")
    assert lines[at + 1].split() == ["target", "tasks", "edges", "levels", "widest"]
    assert lines[at + 2].split() == ["x86_64", "3", "2", "2", "2"]


def test_weights_and_device_images(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "full.nova"
    values = np.arange(4, dtype="f4")
    full = dataclasses.replace(
        contents_of("x86_64"),
        weights={1: memoryview(values)},
        devices=(DeviceImage("ptx", "sm_90a", PTX),),
    )
    path.write_bytes(write_artifact(full))
    result = json.loads(inspect(path, capsys, "--json"))
    tensor = {"name": "W", "type": "f32[4]", "offset": 0, "nbytes": 16}
    assert result["weights"] == {
        "kind": "embedded",
        "sha256": "",
        "nbytes": 16,
        "tensors": [tensor],
    }
    (device,) = result["devices"]
    assert (device["kind"], device["arch"], device["size"]) == ("ptx", "sm_90a", len(PTX))
    names = [section["name"] for section in result["sections"]]
    assert ".nova.weights" in names and ".nova.device" in names
    text = inspect(path, capsys)
    assert "  weights     embedded, 1 tensor, 16 B\n" in text
    assert "\ndevice images\n" in text and "sm_90a" in text
    nova.load(path).save(path, weights="external")
    [file] = path.parent.glob(f"{path.stem}-*.safetensors")
    sibling = sha256(file.read_bytes()).hexdigest()
    assert f"external, 1 tensor, 16 B, file with sha256 {sibling}" in inspect(path, capsys)


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "text", "folder", "missing"])
def test_damaged_file(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    path = tmp_path / "damaged.nova"
    data = model.read_bytes()
    middle = len(data) // 2
    if damage == "flip":
        path.write_bytes(data[:middle] + bytes([data[middle] ^ 4]) + data[middle + 1 :])
    elif damage == "folder":
        path.mkdir()
    elif damage != "missing":
        path.write_bytes({"cut": data[:middle], "empty": b"", "text": b"hello\n" * 999}[damage])
    assert main(["inspect", str(path)]) == 1
    output = capsys.readouterr()
    assert output.out == "" and output.err.startswith("nova inspect: ") and str(path) in output.err
    if damage not in ("folder", "missing"):
        assert "check '" in output.err and "failed" in output.err


def test_reader_that_leaves(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

        def fileno(self) -> int:
            return spare.fileno()

    with open("/dev/null", "w") as spare:
        monkeypatch.setattr("sys.stdout", Closed())
        assert main(["inspect", str(model)]) == 1


def test_usage(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["unknown"], ["inspect"]):
        with pytest.raises(SystemExit) as caught:
            main(words)
        assert caught.value.code == 2
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"nova {nova.__version__}\n"


# --- the text of tables ---------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_terminal_with_and_without_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table("title", ("name", "size"), [("f32[2,3]", 12), ("\x1b[2J", 7)])
    empty = Table("nothing", ("name",), [])
    colourful = Terminal()
    print_tables([table, empty, table], colourful)
    assert "\x1b[1mtitle" in colourful.getvalue() and "f32[2,3]" in colourful.getvalue()
    assert "\x1b[2J" not in colourful.getvalue() and "nothing" not in colourful.getvalue()
    original = builtins.__import__

    def without_rich(name: str, *args: object) -> object:
        if name.split(".")[0] == "rich":
            raise ImportError(name)
        return original(name, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without_rich)
    plain = Terminal()
    print_tables([table], plain)
    assert plain.getvalue() == "title\n  name      size\n  f32[2,3]    12\n  \\x1b[2J      7\n"


def test_numbers_for_people() -> None:
    assert [format_bytes(n) for n in (0, 1023, 40960, 3 << 20, 5 << 30, 1 << 50)] == [
        *("0 B", "1023 B", "40.0 KiB", "3.0 MiB", "5.0 GiB", "1024.0 TiB")
    ]
    assert [format_seconds(s) for s in (2e-6, 0.0031, 2)] == ["2.0 us", "3.1 ms", "2.00 s"]
    assert [format_age(s) for s in (-1, 5, 200, 7300, 200000)] == [
        "0 s",
        "5 s",
        "3 min",
        "2 h",
        "2 d",
    ]


def test_symbolic_sizes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Sizes have their names, and numbers of the tables say which sizes they are for."""
    n, m = nova.dim("n", min=1, max=4096), nova.dim("m")
    x, w = nova.input((n, m, 8), name="x"), nova.tensor(np.ones((8, 4), "f4"), name="w")
    y = nova.concat([x @ w, x @ w])
    path = tmp_path / "symbolic.nova"
    nova.compile(y, inputs=[x], params=[w], specialize=[{"n": 5, "m": 7}]).save(path)
    text = inspect(path, capsys)
    assert "f32[n,m,8]" in text and "f32[n*2,m,4]" in text and "by sizes" in text
    lines = [line.split() for line in text.splitlines()]
    assert ["n", "1", "4096"] in lines and ["cpu", "7", "5"] in lines
    result = json.loads(inspect(path, capsys, "--json"))
    assert [d["name"] for d in result["dims"]] == ["m", "n"]
    assert [(t["shape"], t["nbytes"]) for t in result["signature"]] == [
        (["n", "m", 8], None),
        ([8, 4], 128),
        (["n*2", "m", 4], None),
    ]
    (variant,) = result["variants"]
    assert variant["specialized"] == [[7, 5]] and set(variant["representative"]) == {"m", "n"}
    for number in variant["representative"].values():
        titles = [line for line in text.splitlines() if str(number) in line]
        assert titles and all("representative sizes" in line for line in titles)
    assert main(["run", str(path), "--random", "--repeat", "2"]) == 0
    assert "[32,16,4]" in capsys.readouterr().out
    np.save(tmp_path / "x.npy", np.ones((3, 2, 8), "f4"))
    assert main(["run", str(path), "--random", "--input", f"x={tmp_path / 'x.npy'}"]) == 0
    assert "[6,2,4]" in capsys.readouterr().out
