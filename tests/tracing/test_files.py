"""What a trace is written as: JSON for Perfetto, the summary, and the page by its structure."""

from __future__ import annotations

import json
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from events import check_events
from graphs import PEAKS, fork_join_timeline, kernel, make_run, make_tables, noisy_run, records

from nova.tracing import page, perfetto
from nova.tracing.graph import make_graph
from nova.tracing.run import replay
from nova.tracing.summary import summarize
from nova.tracing.timeline import make_timeline


def write(*runs):
    return json.loads(perfetto.to_json(runs, str(summarize(runs, PEAKS))))


# --- Perfetto -------------------------------------------------------------------------------------


def test_events_of_a_run():
    events = write(make_run(fork_join_timeline()))["traceEvents"]
    assert check_events(events) == []
    names = {e["args"]["name"]: e["pid"] for e in events if e["name"] == "process_name"}
    assert list(names) == ["measured", "planned"]
    lanes = {(e["pid"], e["args"]["name"]): e["tid"] for e in events if e["name"] == "thread_name"}
    assert set(lanes) == {
        (pid, lane) for pid in names.values() for lane in ("worker 0", "worker 1", "critical path")
    }
    local = [e for e in events if e["ph"] == "X" and e["pid"] == names["measured"]]
    on_workers = [e for e in local if e["tid"] < 2]
    assert [e["name"] for e in on_workers if e["tid"] == 1] == ["wide[1:2]", "wide[3:4]"]
    stolen = on_workers[2]
    assert (stolen["ts"], stolen["dur"]) == (0.15, 0.1)
    assert stolen["args"] == {
        "program": "fork",
        "task": 2,
        "tiles": "1:2 of 4",
        "core": "matrix",
        "flops": 2000,
        "bytes": 16000,
        "waited_us": 0.05,
        "critical": True,
        "line": "model.py:4",
        "stolen_from": 0,
    }
    path = [e for e in local if e["tid"] == lanes[names["measured"], "critical path"]]
    assert [e["name"] for e in path] == ["load", "wide[1:2]", "wide[3:4]", "join", "last"]
    assert [e["args"]["waited_for"] for e in path] == ["start", "data", "core", "join", "data"]
    assert sum(e["args"]["critical"] for e in on_workers) == len(path)


def test_edges_are_flows_between_lanes():
    events = write(make_run(fork_join_timeline()))["traceEvents"]
    starts = {e["id"]: e for e in events if e["ph"] == "s" and e["pid"] == 1}
    ends = {e["id"]: e for e in events if e["ph"] == "f" and e["pid"] == 1}
    assert len(starts) == len(ends) == 9
    assert sorted((e["tid"], ends[i]["tid"]) for i, e in starts.items()).count((1, 0)) == 2


def test_ready_tasks_are_counted():
    events = write(make_run(fork_join_timeline()))["traceEvents"]
    counts = [(e["ts"], e["args"]["ready"]) for e in events if e["ph"] == "C" and e["pid"] == 1]
    assert counts[:4] == [(0.0, 1), (0.01, 0), (0.1, 4), (0.11, 3)] and counts[-1][1] == 0


def test_runs_at_the_same_time_have_their_own_lanes():
    single = make_run(fork_join_timeline())
    later = make_run(make_later(500))
    overlapping = make_run(make_later(200), "other")
    events = write(single, overlapping, later)["traceEvents"]
    assert check_events(events) == []
    groups = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    assert sorted(groups) == ["measured", "measured (2)", "planned", "planned (2)"]
    planned = [e["pid"] for e in events if e["ph"] == "X" and e["pid"] in (2, 4) and e["tid"] < 2]
    assert len(planned) == 14, "the plan of a program is there once"


def make_later(start):
    timeline = fork_join_timeline()
    rows = timeline.records.copy()
    for name in ("ready", "start", "end"):
        rows[name] += start
    return make_timeline(timeline.graph, rows, 2, start, start + 410)


def test_edges_that_do_not_fit_are_counted(monkeypatch):
    monkeypatch.setattr(perfetto, "MOST_FLOWS", 5)
    written = write(make_run(fork_join_timeline()))
    assert sum(e["ph"] == "s" for e in written["traceEvents"]) == 5
    assert written["otherData"]["edges_left_out"] == 13


@pytest.mark.parametrize("seed", range(4))
def test_any_run_gives_a_sound_file(seed):
    events = write(noisy_run(seed, 1 + 3 * seed))["traceEvents"]
    assert check_events(events) == []


def test_the_check_finds_what_is_wrong():
    slice_ = {"ph": "X", "pid": 1, "tid": 0, "name": "a", "ts": 0.0, "dur": 2.0}
    flow = {"ph": "s", "pid": 1, "tid": 0, "id": 1, "ts": 2.0}
    assert "overlaps" in check_events([slice_, {**slice_, "ts": 1.0}])[0]
    assert "no end" in check_events([flow])[0]
    assert "before it begins" in check_events([flow, {**flow, "ph": "f", "ts": 1.0}])[0]


# --- the summary ----------------------------------------------------------------------------------


def test_figures_of_a_summary():
    run = make_run(fork_join_timeline())
    result = summarize([run, run], PEAKS)
    assert (result.runs, result.workers, result.time, result.busy) == (2, 2, 820, 1012)
    wide = result.kernels[0]
    assert (wide.name, wide.tasks, wide.time, wide.flops) == ("wide", 8, 690, 16000)
    assert wide.flop_rate == pytest.approx(16000 / 690e-9)
    assert result.flop_rate == pytest.approx(2 * 10000 / 820e-9)
    assert sum(result.path.values()) == 410
    assert result.bound == 261


def test_text_of_a_summary():
    text = str(summarize([make_run(fork_join_timeline())], PEAKS))
    assert text.startswith("1 run measured on 2 workers: 410 ns (planned ")
    assert "24.39 GFLOP/s, 6.1 % of this machine's 400 on 4 cores" in text
    for line in (
        "wide    matrix      4  345 ns  68.2 %    23.19   23.2 %  185.51  model.py:4",
        "in tasks            506 ns  61.7 %",
        "from a free core to its next task         10 ns",
        "at least 261 ns on any number of cores",
        "160 ns  wide (model.py:4): 2 of 4 tasks on the path",
    ):
        assert line in text
    assert str(summarize([], PEAKS)) == "no run was traced"


def test_lost_records_are_said():
    run = replace(make_run(fork_join_timeline()), lost=3)
    assert "3 records were lost" in str(summarize([run], PEAKS))


def test_kernels_of_several_programs_are_told_apart():
    runs = [make_run(fork_join_timeline(), name) for name in ("one", "two")]
    assert "wide of one" in str(summarize(runs, PEAKS))


def test_a_replay_has_the_measured_times():
    run = replay(make_run(fork_join_timeline()), 4)
    assert run.kind == "replayed" and run.measured.workers == run.planned.workers == 4
    assert run.measured.busy == 506
    assert run.measured.makespan == 90 + 100 + 1 + 70
    assert "1 run replayed on 4 workers" in str(summarize([run], PEAKS))


# --- the page -------------------------------------------------------------------------------------


class Page(HTMLParser):
    """Elements by id, the data, and everything that would be loaded from elsewhere."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.loads, self.open = set(), [], []
        self.data, self.scripts = "", 0
        self._in_data = False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        result = dict(attrs)
        self.ids |= {result["id"]} if "id" in result else set()
        self.loads += [v for k, v in attrs if k in ("src", "href", "action")]
        self.scripts += tag == "script"
        self._in_data = result.get("id") == "data"
        if tag not in ("meta", "input", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        self._in_data = False
        assert self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data):
        if self._in_data:
            self.data += data


def make_page(*runs):
    return page.to_html(runs, summarize(runs, PEAKS))


def test_the_page_is_whole_and_loads_nothing():
    text = make_page(make_run(fork_join_timeline()))
    result = Page(text)
    assert result.open == [] and result.loads == [] and result.scripts == 2
    assert {"lanes", "figures", "kernels", "advice", "idle", "path", "curve", "runs"} <= result.ids
    assert "http" not in text.replace("http-equiv", "") and "default-src 'none'" in text
    assert "@DATA@" not in text
    assert len(text) < 40_000


def test_the_data_of_the_page():
    data = json.loads(Page(make_page(make_run(fork_join_timeline()), noisy_run(1, 4))).data)
    assert [run["program"] for run in data["runs"]] == ["fork", "program 1"]
    assert data["longest"] == 1 and data["left_out"] == 0
    run = data["runs"][0]
    assert run["measured"]["task"] == [0, 1, 2, 3, 4, 5, 6]
    assert run["measured"]["stolen"] == [-1, -1, 0, -1, 0, -1, -1]
    assert run["measured"]["critical"] == [0, 2, 4, 5, 6]
    assert run["makespan"] == 410 and sum(run["path"].values()) == 410
    graph = data["graphs"][run["graph"]]
    assert graph["successors"][0] == [1, 2, 3, 4]
    names = [data["kernels"][k]["name"] for k in graph["kernel"]]
    assert names == ["load", *["wide"] * 4, "last", "last"]
    points = run["curve"]
    assert [p["cores"] for p in points][:3] == [1, 2, 4]
    assert points[0]["speedup"] == 1.0 and all(p["speedup"] <= p["limit"] for p in points)


def test_a_graph_is_there_once():
    run = make_run(fork_join_timeline())
    data = json.loads(Page(make_page(run, replace(run), noisy_run(2, 2))).data)
    assert len(data["graphs"]) == 2


def test_names_cannot_leave_the_data():
    tables = make_tables([kernel("</script><script>alert(1)//")], [(0, 0, 1)])
    timeline = make_timeline(make_graph(tables), records((0, 0, 0, 0, 5)), 1, 0, 5)
    result = Page(make_page(make_run(timeline, "<img src=x>")))
    assert result.scripts == 2 and result.loads == []
    assert json.loads(result.data)["kernels"][0]["name"].startswith("</script>")


def test_runs_that_do_not_fit_are_left_out(monkeypatch):
    monkeypatch.setattr(page, "MOST_RECORDS", 20)
    short = make_run(fork_join_timeline(), "short")
    data = json.loads(Page(make_page(short, noisy_run(1, 4), short)).data)
    assert [run["program"] for run in data["runs"]] == ["program 1"] and data["left_out"] == 2


def test_a_page_without_runs():
    data = json.loads(Page(make_page()).data)
    assert data["runs"] == [] and data["table"] == []
