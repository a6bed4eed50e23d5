"""Many processes on one cache folder, some of them killed. Run as a script of its own.

`herd.py compile|fake FOLDER PROCESSES KILLS SEED` imports everything once, forks the processes, and
kills that many of them with SIGKILL. Each one asks for several programs that others ask for too,
and checks what it gets; those that are to be killed never stop asking, so that every kill hits, and
the kills come as the work goes on, not by the clock. `compile` compiles tiny programs; `fake`
stores prepared files, with room for half of them, so that all the time goes to the cache itself.
Prints what happened as JSON; the exit status is 1 if any process found something wrong.
"""

from __future__ import annotations

import dataclasses
import gc
import itertools
import json
import os
import random
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

import nova
from nova.api.compile import clear_memory_cache
from nova.artifact.cache.disk import DiskCache, cache_key
from nova.artifact.write import FileSpec, write_artifact
from nova.compiler import driver as codegen
from nova.core.settings import Settings

X = np.arange(6, dtype="f4").reshape(2, 3)

Say = Callable[[str], None]
Ask = Callable[[int, Say], str]  # gets a program by its number; says where it came from


@dataclasses.dataclass(frozen=True)
class Kind:
    """What the processes do: how many programs there are, and how many one process asks for."""

    ask: Ask
    programs: int
    asked: int


def compile_programs(folder: Path) -> Kind:
    """Programs by `nova.compile`."""

    compile_plan = codegen.build

    def ask(number: int, say: Say) -> str:
        def build_and_say(*args: Any) -> Any:
            say("building")
            return compile_plan(*args)

        codegen.build = build_and_say
        program = build(number)
        np.testing.assert_array_equal(program(X), X * number + 1)
        return program.origin

    with nova.knobs.override(cache=False):
        build(-1)  # loads MLIR and LLVM, which takes longer than the compile
    nova.knobs.cache_dir = folder
    return Kind(ask, programs=40, asked=6)


def build(number: int) -> nova.Compiled:
    x = nova.tensor(X, name="x")
    return nova.compile(x * float(number) + 1.0, inputs=[x])


def store_files(folder: Path) -> Kind:
    """Files by `DiskCache` alone."""
    x = nova.tensor(X, name="x")
    plan = nova.compile(x + 1.0, inputs=[x]).plan
    contents = codegen.build(plan, Settings(), {}).contents
    created = [with_key(contents, {"number": f"{number:02}"}) for number in range(12)]
    cache = DiskCache(folder, sum(len(file) for _, file in created) // 2)

    def ask(number: int, say: Say) -> str:
        key, expected = created[number]
        with cache.building(key) as result:
            if result is None:
                say("building")
                time.sleep(random.uniform(0, 0.002))
                cache.put(key, expected)
                return "compiled"
        assert bytes(result.data) == expected
        return "disk"

    return Kind(ask, programs=len(created), asked=12)


def with_key(contents: FileSpec, parts: dict[str, str]) -> tuple[str, bytes]:
    """A file under a key of its own."""
    return cache_key(parts), write_artifact(dataclasses.replace(contents, key=parts, stages={}))


def live(kind: Kind, numbers: Iterable[int], start: int, report: int) -> None:
    """The life of one process; it never returns."""
    status = 1
    try:
        os.nice(5)  # so that the killer is not late
        os.read(start, 1)  # until all are there
        warnings.simplefilter("error")  # a damaged entry would be one
        for number in numbers:

            def say(label: str, number: int = number) -> None:
                os.write(report, f"{os.getpid()} {number} {label}\n".encode())

            clear_memory_cache()
            say(kind.ask(number, say))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def main(name: str, folder: str, processes: str, kills: str, seed: str) -> int:
    chance = random.Random(int(seed))
    mode = {"compile": compile_programs, "fake": store_files}[name](Path(folder))
    clear_memory_cache()
    gc.freeze()
    reports, report = os.pipe()
    begin, start = os.pipe()
    running, victims = set(), []
    for process in range(int(processes)):
        numbers = chance.sample(range(mode.programs), mode.asked)
        is_victim = process < int(kills)
        pid = os.fork()
        if pid == 0:
            os.close(start)
            live(mode, itertools.cycle(numbers) if is_victim else numbers, begin, report)
        running.add(pid)
        victims += [pid] * is_victim
    os.close(report)
    started = time.monotonic()
    os.close(start)
    # A kill falls due when so many lines were said; more of them early, when most is built.
    lines = int(processes) * mode.asked // 2
    due = sorted(int(lines * chance.random() ** 3) for _ in range(int(kills)))
    ended: Counter[int] = Counter()
    output = b""
    os.set_blocking(reports, False)
    while running:
        time.sleep(chance.uniform(0, 0.004))
        output += read_all(reports)
        while due and output.count(b"\n") >= due[0]:
            victim = choose_victim(victims, output.decode(), chance)
            os.kill(victim, signal.SIGKILL)
            victims.remove(victim)
            due.pop(0)
        for pid in list(running):
            completed, status = os.waitpid(pid, os.WNOHANG)
            if completed:
                running.remove(pid)
                ended[os.waitstatus_to_exitcode(status)] += 1
    output += read_all(reports)
    seconds = time.monotonic() - started
    print(json.dumps({"seconds": round(seconds, 2), **summarize(output.decode(), ended)}))
    return 0 if ended.keys() <= {0, -signal.SIGKILL} else 1


def choose_victim(victims: list[int], output: str, chance: random.Random) -> int:
    """One that builds right now, if there is one: at most times most processes only read."""
    last = {int(pid): label for pid, _, label in map(str.split, output.splitlines())}
    building = [pid for pid in victims if last.get(pid) == "building"]
    return chance.choice(building or victims)


def read_all(pipe: int) -> bytes:
    """What is in a pipe now."""
    try:
        return os.read(pipe, 1 << 20)
    except BlockingIOError:
        return b""


def summarize(output: str, ended: Counter[int]) -> dict[str, object]:
    lines = [line.split() for line in output.splitlines()]
    last = {pid: label for pid, _, label in lines}
    return {
        "killed": ended[-signal.SIGKILL],
        "killed_building": sum(label == "building" for label in last.values()),
        "finished": ended[0],
        "failed": sum(ended.values()) - ended[0] - ended[-signal.SIGKILL],
        "builds": sum(label == "building" for _, _, label in lines),
        "compiled": sum(label == "compiled" for _, _, label in lines),
        "disk": sum(label == "disk" for _, _, label in lines),
        "programs": len({number for _, number, label in lines}),
    }


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
