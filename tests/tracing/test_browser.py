"""The page in a real browser: what it draws, and what the mouse does to it."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess

import pytest
from graphs import PEAKS, fork_join_timeline, make_run, noisy_run

from nova.artifact.device_launch import DeviceLaunch
from nova.artifact.tables import KernelSpec
from nova.tracing.device_run import DeviceRun, Span
from nova.tracing.page import to_html
from nova.tracing.summary import summarize

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = next((found for name in NAMES if (found := shutil.which(name))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason=f"none of {', '.join(NAMES)} is installed")

# Runs behind the page's own script, and leaves what it has seen in the document.
PROBE = """
<script>
window.onerror = text => { document.body.dataset.error = text; };
function colours(x, y, width, height) {
  const ratio = window.devicePixelRatio || 1, seen = new Set();
  const all = pen.getImageData(x * ratio, y * ratio, width * ratio, height * ratio).data;
  for (let i = 0; i < all.length; i += 4) seen.add(all[i] + "," + all[i + 1] + "," + all[i + 2]);
  return seen.size;
}
function mouse(name, x, y, more) {
  const box = canvas.getBoundingClientRect();
  const at = {clientX: box.left + x, clientY: box.top + y, bubbles: true, pointerId: 1};
  const kind = name === "wheel" ? WheelEvent : PointerEvent;
  canvas.dispatchEvent(new kind(name, {...at, ...more}));
}
canvas.setPointerCapture = () => {};
const report = {runs: data.runs.length, workers: run.workers};
report.colours = colours(LABEL, AXIS, size.width - LABEL, size.height - AXIS);
const first = run.measured, last = first.task.length - 1;
const x = (xOf(first.start[last]) + xOf(first.end[last])) / 2;
const y = laneTop(0, first.worker[last]) + laneHeight / 2;
mouse("pointermove", x, y);
report.tip = $("tip").style.display === "block" ? $("tip").innerText : "";
const span = view.span;
mouse("wheel", x, y, {deltaY: -500});
report.zoomed = view.span < span / 2;
mouse("pointerdown", x, y); mouse("pointermove", x + 50, y); mouse("pointerup", x + 50, y);
report.dragged = drag === null && picked === -1;
fit();
report.fitted = view.start === 0 && view.span === span;
mouse("pointerdown", x, y); mouse("pointerup", x, y);
report.picked = picked;
mouse("pointerleave", 0, 0);
report.hidden = $("tip").style.display === "none";
$("runs").value = "1"; $("runs").onchange({target: $("runs")});
report.second = $("about").textContent;
document.body.dataset.report = JSON.stringify(report);
</script>
</body>"""


def open_page(tmp_path, text, *options):
    path = tmp_path / "trace.html"
    path.write_text(text)
    completed = subprocess.run(
        [
            BROWSER,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            f"--user-data-dir={tmp_path / 'profile'}",
            "--window-size=1400,1000",
            "--virtual-time-budget=3000",
            *options,
            path.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


@pytest.fixture(scope="module")
def runs():
    return [noisy_run(3, 4, 30), make_run(fork_join_timeline())]


def test_the_page_draws_and_answers_the_mouse(tmp_path, runs):
    text = to_html(runs, summarize(runs, PEAKS)).replace("</body>", PROBE)
    listing = open_page(tmp_path, text, "--dump-dom")
    assert 'data-state="ready"' in listing and "data-error" not in listing
    report = json.loads(html.unescape(re.search(r'data-report="([^"]*)"', listing)[1]))
    assert (report["runs"], report["workers"]) == (2, 4)
    assert report["colours"] > 10, "kernels have shades, lanes and path colours of their own"
    assert "kernel_" in report["tip"] and "core type" in report["tip"]
    assert report["zoomed"] and report["dragged"] and report["fitted"] and report["hidden"]
    assert report["picked"] >= 0
    assert report["second"] == "fork · 7 tasks"
    table = re.search(r'<table id="kernels">.*?</table>', listing, re.S)[0]
    kernels = {k.name for k in summarize(runs, PEAKS).kernels}
    assert table.count("<tr>") == len(summarize(runs, PEAKS).kernels) + 1
    assert all(name in table for name in kernels)
    assert "<polyline" in listing and "what would shorten it" in listing.lower()


def test_hostile_names_stay_text(tmp_path):
    run = make_run(fork_join_timeline(), "<b id=planted onclick=alert(1)>name</b>")
    listing = open_page(tmp_path, to_html([run], summarize([run], PEAKS)), "--dump-dom")
    assert 'data-state="ready"' in listing
    outside = re.sub(r'<script type="application/json".*?</script>', "", listing, flags=re.S)
    assert "<b id=" not in outside and "&lt;b id=planted" in outside


DEVICE_PROBE = """
<script>
window.onerror = text => { document.body.dataset.error = text; };
const report = {title: $("idle-title").textContent, groups: run.groups.length};
report.about = $("about").textContent;
const kernel = run.measured.worker.indexOf(2);
const x = (xOf(run.measured.start[kernel]) + xOf(run.measured.end[kernel])) / 2;
const box = canvas.getBoundingClientRect();
canvas.dispatchEvent(new PointerEvent("pointermove", {bubbles: true, clientX: box.left + x,
  clientY: box.top + laneTop(0, 2) + laneHeight / 2}));
report.tip = $("tip").style.display === "block" ? $("tip").innerText : "";
report.legend = $("legend").innerText;
report.hidden = $("advice-card").hidden;
$("runs").value = "1"; $("runs").onchange({target: $("runs")});
report.other = $("idle-title").textContent + ", " + $("legend").innerText;
report.shown = !$("advice-card").hidden;
document.body.dataset.report = JSON.stringify(report);
</script>
</body>"""


def test_a_run_on_a_device(tmp_path):
    kernel = KernelSpec("kernel_7", "kernel_7", 1, "device", 64, 512, "model.py:3",
                        device=DeviceLaunch((4, 1, 1), (128, 1, 1), 96))  # fmt: skip
    spans = (
        Span("host", "enqueue", "enqueue", 0, 40_000),
        Span("copies", "copy in", "to device: x", 5_000, 9_000, 4096, ("x",)),
        Span("kernels", "kernel", "kernel_7", 10_000, 500_000, kernels=(kernel,), launch=0),
        Span("host", "wait", "wait", 40_000, 510_000),
    )
    device = DeviceRun("model", "cuda:0", 0, 520_000, spans)
    runs = [device, make_run(fork_join_timeline())]
    text = to_html(runs, summarize(runs, PEAKS)).replace("</body>", DEVICE_PROBE)
    listing = open_page(tmp_path, text, "--dump-dom")
    assert 'data-state="ready"' in listing and "data-error" not in listing
    report = json.loads(html.unescape(re.search(r'data-report="([^"]*)"', listing)[1]))
    assert (report["title"], report["groups"]) == ("Time of the device", 1)
    assert report["about"] == "model · 4 spans" and report["hidden"] and report["shown"]
    for expected in ("kernel_7", "4x1x1", "128x1x1", "model.py:3"):
        assert expected in report["tip"]
    assert "copies" in report["legend"]
    assert report["other"].startswith("Time of the cores") and "critical path" in report["other"]
    assert "<td>kernel_7</td>" in listing


def test_a_page_without_runs_says_so(tmp_path):
    listing = open_page(tmp_path, to_html([], summarize([], PEAKS)), "--dump-dom")
    assert 'data-state="ready"' in listing and "no run was traced" in listing


def test_a_screenshot_is_not_empty(tmp_path, runs):
    image = tmp_path / "page.png"
    open_page(tmp_path, to_html(runs, summarize(runs, PEAKS)), f"--screenshot={image}")
    assert image.read_bytes()[:4] == b"\x89PNG" and image.stat().st_size > 50_000
