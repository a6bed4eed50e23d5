"""The documentation site: navigation, links, the API page, and the build, which needs mkdocs."""

from __future__ import annotations

import importlib.util
import os
import posixpath
import re
import shutil
import subprocess
import sys
from pathlib import Path
from pkgutil import resolve_name

import pytest
from page_blocks import ROOT

import nova

CONFIG = (ROOT / "mkdocs.yml").read_text()
NAV = re.findall(r"(?<=[ ])[\w./-]+\.md$", CONFIG.partition("\nnav:\n")[2], re.MULTILINE)


def load_pages():
    spec = importlib.util.spec_from_file_location("site_pages", ROOT / "docs/site/pages.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


pages = load_pages()
OUTSIDE = pages.outside_pages()
IN_DOCS = {p.name for p in (ROOT / "docs").glob("*.md")} - {"README.md"}


def test_navigation_has_every_page_once_and_no_other() -> None:
    assert sorted(NAV) == sorted(IN_DOCS | set(OUTSIDE.values()) | {pages.C_API})


@pytest.mark.parametrize("page", sorted(IN_DOCS | set(OUTSIDE.values())))
def test_links_lead_to_pages_of_the_site(page: str) -> None:
    source = pages.source_of(page)
    text = (ROOT / source).read_text() if page in IN_DOCS else pages.page_text(source)
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    for path, _ in pages.LINK.findall(pages.rewrite_links(text, page)):
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
        assert target in {*NAV, *pages.IMAGES.values()}, f"{source} links to {path}"


def test_readme_lists_every_page_and_the_api_page_each_name_once() -> None:
    readme = (ROOT / "README.md").read_text()
    assert [page for page in sorted(IN_DOCS) if f"(docs/{page})" not in readme] == []
    names = re.findall(r"^::: (\S+)", (ROOT / "docs/api.md").read_text(), re.MULTILINE)
    assert sorted(set(names)) == sorted(names)
    for name in names:
        assert resolve_name(name) is not None, name


def test_links_are_rewritten() -> None:
    text = "[a](docs/ops.md#x) [b](benchmarks/RESULTS.md) [c](https://example.org/x.md) [d](#y)"
    assert pages.rewrite_links(text, "index.md") == (
        "[a](ops.md#x) [b](benchmarks/results.md) [c](https://example.org/x.md) [d](#y)"
    )
    assert pages.rewrite_links("[a](../CONTRIBUTING.md)", "ops.md") == "[a](contributing.md)"
    assert pages.rewrite_links("[a](../nova/knobs.py)", "ops.md") == "[a](../nova/knobs.py)"
    up = pages.rewrite_links("[a](RESULTS.md) [b](../docs/ops.md)", "benchmarks/index.md")
    assert up == "[a](results.md) [b](../ops.md)"


def test_the_site_needs_no_network() -> None:
    assert not re.search(r"https?://", CONFIG)
    assert "font: false" in CONFIG and "\n  - offline\n" in CONFIG
    for page in [*IN_DOCS, "../README.md"]:
        text = (ROOT / "docs" / page).read_text()
        assert "```mermaid" not in text, f"{page}: the script that draws it is on another host"


def test_every_public_name_is_on_the_api_page() -> None:
    page = (ROOT / "docs/api.md").read_text()
    stub = Path(nova.__file__).with_suffix(".pyi").read_text()
    names = re.findall(r"^from nova\.?([\w.]*) import (\w+) as \2$", stub, re.MULTILINE)
    assert len(names) > 30
    for module, name in names:
        if name != "errors" and (module != "core.dtypes" or name in ("DType", "TensorType")):
            assert re.search(rf"(::: |heading: )nova\.{name}\b", page), f"nova.{name}"
    for module in ("nn", "optim", "debug"):  # all names of their `__all__`; see `test_build`
        assert f"\n::: nova.{module}\n:::" in page or f"\n::: nova.{module}\n\n" in page


def test_c_api_page() -> None:
    text = pages.c_api()
    assert text.startswith("# C API\n") and text.index("## `nova/model.h`") < text.index(
        "nova_run("
    )
    assert "NOVA_API nova_status nova_open(const char *path" in text and "#ifndef" not in text


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly: a broken link, anchor or reference fails."""
    pytest.importorskip("mkdocs")
    pytest.importorskip("material")
    pytest.importorskip("mkdocstrings")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(folder)]
    settings = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    build = subprocess.run(
        command, cwd=ROOT, env=settings, capture_output=True, text=True, check=False
    )
    assert build.returncode == 0, build.stderr
    return folder


@pytest.mark.slow
def test_build(site: Path) -> None:
    text = (site / "api.html").read_text()
    assert "nova.compile" in text and "Compile" in text and "doc-signature" in text
    for module in (nova.nn, nova.optim, nova.debug):
        for name in module.__all__:
            assert f'.{name}"' in text, f"{module.__name__}.{name}"
    for page in NAV:
        title = re.search(r"<title>(.*?)</title>", (site / page).with_suffix(".html").read_text())
        assert title is not None and title[1].strip(" -"), page


@pytest.mark.slow
def test_search_works_from_the_file_system(site: Path, tmp_path: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        pytest.skip("no Chromium")
    url = f"file://{site}/index.html?q=bufferization"
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000"]
    command = [browser, *options, f"--user-data-dir={tmp_path}", "--dump-dom", url]
    dump = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert re.search(r"\d+ matching document", dump.stdout), dump.stderr[-2000:]
