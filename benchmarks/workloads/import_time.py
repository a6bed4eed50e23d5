"""The time to import a library in a new process, and `import nova` by package."""

import time

TITLE = "Import"
MODE = "fresh"
KEEP_CACHES = True
UNIT = "ms"
SLOW = ("torch",)


def _importer(name):
    def measure():
        start, cpu = time.perf_counter(), time.process_time()
        __import__(name)
        return {"import": time.perf_counter() - start, "CPU": time.process_time() - cpu}

    return measure


def nova():
    phases = _importer("nova")()
    import sys

    heavy = {"torch_mlir", "llvmlite", "platformdirs", "rich", "difflib", "filelock"}
    assert not heavy & set(sys.modules), f"loaded without need: {heavy & set(sys.modules)}"
    return phases


def breakdown(environment, runs=7):
    """Milliseconds of `import nova` by origin: the least of several runs for each module."""
    import subprocess
    import sys

    least = {}
    for _ in range(runs):
        command = [sys.executable, "-X", "importtime", "-c", "import numpy, nova"]
        text = subprocess.run(command, env=environment, capture_output=True, text=True).stderr
        for line in text.splitlines()[1:]:
            self_time, _, name = line.partition(":")[2].split("|")
            least[name.strip()] = min(int(self_time), least.get(name.strip(), 1 << 30))
    groups = {}
    for name, self_time in least.items():
        top, _, submodule = name.partition(".")
        if top == "nova":
            group = "nova." + submodule.partition(".")[0] if submodule else "nova"
        elif top in ("numpy", "ml_dtypes"):
            group = top
        else:
            group = "Python's own library, with what numpy needs of it"
        groups[group] = groups.get(group, 0) + self_time / 1000
    return dict(sorted(groups.items(), key=lambda item: -item[1]))


CONTENDERS = {
    "nova": ("nova", nova),
    "numpy alone": ("numpy", _importer("numpy")),
    "numba": ("numba", _importer("numba")),
    "jax": ("jax", _importer("jax")),
    "torch": ("torch", _importer("torch")),
    "iree.runtime": ("iree", _importer("iree.runtime")),
}
