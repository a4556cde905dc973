"""A sweep in a folder is the sweep in memory, whoever worked it out and whatever was killed meanwhile."""

import contextlib
import hashlib
import json
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import pandas as pd
import pytest

import perfmodel
from perfmodel.cli import run
from perfmodel.errors import UserError
from perfmodel.question import Options
from perfmodel.specs.paths import put
from perfmodel.sweeps import cluster, folder
from perfmodel.sweeps.asking import space as design_space

AXES = {
    "system": "dgx-h100,dgx-b200",
    "system.memory.hbm.bandwidth": "2 TB/s:8 TB/s:16",
    "traffic.concurrency": "1:200:16:log",
    "traffic.prompt": "100:100000:16",
    "deployment.tp": [1.0, 2.0, 4.0, 8.0],
}
ROOT = Path(__file__).resolve().parents[2]
#: Points of a partition, and how many partitions that makes of the space: enough that one of them is under way still
#: when a process is killed, however slow the test is.
POINTS, PARTS = 512, 64
#: Cheap to work out.
CHEAP = "quantiles:tpot_s,mfu:by=system"
FRONT = "pareto:tpot_s,usd_per_mtok_blended:by=system"


def asked(axes=AXES):
    return design_space("llama-3.1-70b", "dgx-h100", axes, Options())


@pytest.fixture(scope="module")
def space():
    return asked()


@pytest.fixture(scope="module")
def whole(space):
    return space.evaluate().to_frame()


@pytest.fixture(scope="module")
def dask_cluster():
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs=50) as started,
        Client(started, set_as_default=False) as client,
    ):
        yield client


def same(found, expected):
    pd.testing.assert_frame_equal(found, expected, check_exact=True, check_dtype=False)


def parts(path):
    return {part.name: part.stat().st_mtime_ns for part in path.rglob("part-*.parquet")}


def wait_for(path, count, alive=lambda: True):
    for _ in range(2400):
        if len(parts(path)) >= count:
            return
        assert alive()
        time.sleep(0.025)
    raise AssertionError(f"{len(parts(path))} partitions after a minute")


# --- on one machine ----------------------------------------------------------------------------------------------


def test_all_points_to_the_bit(space, whole, tmp_path):
    stored = folder.run(space, tmp_path / "all", "asked", points=POINTS)
    assert (stored.points, stored.partitions, stored.found) == (len(whole), PARTS, 0)
    same(stored.to_frame(), whole)
    same(stored.to_dask().compute().reset_index(drop=True), whole)
    assert stored.fits()


def test_columns_have_units_provenance_and_a_dictionary(space, whole, tmp_path):
    import pyarrow.parquet as pq

    stored = folder.run(space, tmp_path / "all", "how it was asked", points=2**14)
    schema = pq.read_schema(stored.folder / "part-00000.parquet")
    assert schema.metadata[b"unit:tpot_s"] == b"s"
    assert b"how it was asked" in schema.metadata[b"perfmodel"]
    assert b"traffic chat" in schema.metadata[b"perfmodel"]
    dictionary = pd.read_csv(stored.folder / "_columns.csv", keep_default_na=False)
    assert list(dictionary["column"]) == list(whole.columns)
    assert (dictionary["meaning"] != "").all()
    units = dict(zip(dictionary["column"], dictionary["unit"], strict=True))
    assert (units["tpot_s"], units["system.memory.hbm.bandwidth"], units["usd_per_mtok_input"]) == ("s", "B/s", "USD")
    kinds = dict(zip(dictionary["column"], dictionary["type"], strict=True))
    for name, column in whole.items():
        expected = "boolean" if column.dtype == bool else "number" if column.dtype == float else "text"
        assert kinds[name] == expected, name
    manifest = json.loads((stored.folder / "_sweep.json").read_text())
    assert manifest["finished"]
    assert manifest["points"] == len(whole)
    assert manifest["perfmodel"] == perfmodel.__version__


def test_a_machine_whose_layouts_loop(tmp_path):
    axes = {"deployment.tp": "8,16", "system.efficiency.beat": "load,fixed", "traffic.concurrency": [1.0, 9.0, 300.0]}
    options = {"on": "lpu-v1", "precision": "fp8", "pp": 33}
    stored = perfmodel.sweep("llama-3.1-8b", axes=axes, out=tmp_path / "lpu", **options)
    same(stored.to_frame(), perfmodel.sweep("llama-3.1-8b", axes=axes, **options).to_frame())


def test_the_same_call_goes_on_where_it_was_stopped(space, tmp_path):
    first = folder.run(space, tmp_path / "front", "asked", keep=CHEAP, points=POINTS)
    before = parts(first.folder)
    for name in list(before)[5:16]:
        (first.folder / "_partial" / name).unlink()
    (first.folder / "_partial" / ".part-00007-1234.partial.parquet").write_bytes(b"PAR1")
    done = []
    again = folder.run(space, tmp_path / "front", "asked again", keep=CHEAP, points=POINTS, tick=done.append)
    assert (again.found, again.partitions) == (PARTS - 11, PARTS)
    assert sum(done) == len(space)
    after = parts(again.folder)
    assert {name for name in before if before[name] == after[name]} == set(list(before)[:5] + list(before)[16:])
    same(again.to_frame(), first.to_frame())
    assert len(list((first.folder / "_partial").iterdir())) == PARTS


def test_a_folder_of_another_sweep_is_refused(space, tmp_path):
    place = tmp_path / "place"
    folder.run(space, place, "the first question", keep=FRONT, points=2**14)
    others = [
        {"space": asked({**AXES, "traffic.concurrency": "1:201:16:log"}), "keep": FRONT},
        {"space": space, "keep": FRONT.replace("tpot", "ttft")},
        {"space": space, "keep": None},
        {"space": design_space("llama-3.1-70b", "dgx-h100", AXES, Options(precision="fp8")), "keep": FRONT},
    ]
    before = parts(place)
    for other in others:
        with pytest.raises(UserError, match=r"another sweep.*the first question"):
            folder.run(other["space"], place, "other", keep=other["keep"], points=2**14)
    assert parts(place) == before


def test_a_table_that_will_not_fit_the_disk_is_refused_before_anything_is_written(space, tmp_path, monkeypatch, capsys):
    real = folder.run(space, tmp_path / "real", "asked", points=2**14).folder
    size = sum(part.stat().st_size for part in real.glob("*.parquet"))

    def free(space):
        usage = shutil.disk_usage(tmp_path)
        monkeypatch.setattr(folder.shutil, "disk_usage", lambda _: usage._replace(free=int(space)))

    # What it is said to take is what it takes, within a fifth.
    free(size * 1.2)
    folder.run(space, tmp_path / "enough", "asked", points=2**14)
    free(size * 0.8)
    with pytest.raises(UserError, match="32,768 points are about"):
        folder.run(space, tmp_path / "short", "asked", points=2**14)
    folder.run(space, tmp_path / "reduced", "asked", keep=FRONT, points=2**14)
    assert not (tmp_path / "short").exists()

    free(60e9)
    huge = ["--axis", "traffic.prompt=100:100000:1000", "--axis", "traffic.output=1:1000:1000"]
    huge += ["--axis", "concurrency=1:64:1000"]
    command = ["sweep", "llama-3.1-70b", "--on", "dgx-h100", *huge, "--out", str(tmp_path / "huge")]
    assert run(command) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    for words in ("1,000,000,000 points are about ", " GB as Parquet", "60 GB are free", "--keep"):
        assert words in err
    assert not (tmp_path / "huge").exists()


SWEEP = [
    "sweep",
    "llama-3.1-8b",
    "--on",
    "dgx-h100",
    "--axis",
    "concurrency=1:64:7",
    "--axis",
    "system=dgx-h100,dgx-b200",
]


def test_the_command_line_prints_what_it_kept(tmp_path, capsys):
    place = str(tmp_path / "place")
    assert run([*SWEEP, "--out", place, "--keep", "best:tpot_s:by=system"]) == 0
    out, err = capsys.readouterr()
    assert "dgx-b200" in out
    assert "14 points in" in err
    assert len(pd.read_parquet(place)) == 2
    assert run([*SWEEP, "--out", place, "--keep", "best:tpot_s:by=system"]) == 0
    assert "2 partitions, 2 of them there already" in capsys.readouterr().err
    assert run([*SWEEP, "--out", str(tmp_path / "q"), "--keep", "quantiles:tpot_s,power_w"]) == 0
    assert "power_w" in capsys.readouterr().out


@pytest.mark.parametrize("keep", [[], ["--keep", "pareto:tpot_s,mfu"], ["--keep", "quantiles:tpot_s"]])
def test_where_nothing_fits_the_exit_code_says_so(keep, tmp_path, capsys):
    command = ["sweep", "llama-3.1-405b", "--on", "dgx-h100:tp=8", "--axis", "concurrency=1,2"]
    assert run([*command, "--out", str(tmp_path / "none"), *keep]) == 3
    assert "no point of the sweep fits" in capsys.readouterr().err
    # And the same command says so again.
    assert run([*command, "--out", str(tmp_path / "none"), *keep]) == 3


HOSTILE = {
    "a file of that name": (["--out", "{tmp}/file"], "there is a file of that name"),
    "other files": (["--out", "{tmp}/other"], "holds other files"),
    "a broken manifest": (["--out", "{tmp}/broken"], "cannot be read"),
    "a manifest of something else": (["--out", "{tmp}/list"], "cannot be read"),
    "no parent": (["--out", "{tmp}/no/such"], "there is no folder"),
    "an unknown ending": (["--out", "{tmp}/rows.xlsx"], ".parquet, or of a folder"),
    "a reduction to a file": (["--out", "{tmp}/rows.csv", "--keep", "best:tpot_s"], "--out DIR"),
    "a reduction to nowhere": (["--keep", "best:tpot_s"], "--keep needs --out DIR"),
    "Dask to a file": (["--executor", "dask", "--out", "{tmp}/rows.csv"], "--executor needs --out DIR"),
    "unknown metric": (["--out", "{tmp}/new", "--keep", "best:tpot"], "expected one of ttft_s"),
    "unknown executor": (["--out", "{tmp}/new", "--executor", "ray"], "local, dask"),
    "a scheduler without Dask": (
        ["--out", "{tmp}/new", "--scheduler", "tcp://x:1"],
        "--scheduler needs --executor dask",
    ),
    "workers without Dask": (["--out", "{tmp}/new", "--workers", "2"], "--workers needs --executor dask"),
    "no workers": (["--out", "{tmp}/new", "--executor", "dask", "--workers", "0"], "at least 1"),
    "scheduler and workers": (
        ["--out", "{tmp}/new", "--executor", "dask", "--workers", "2", "--scheduler", "tcp://x:1"],
        "either",
    ),
    "no scheduler there": (
        ["--out", "{tmp}/new", "--executor", "dask", "--scheduler", "tcp://127.0.0.1:9"],
        "no Dask scheduler answers",
    ),
    "no address": (
        ["--out", "{tmp}/new", "--executor", "dask", "--scheduler", "nonsense://"],
        "no Dask scheduler answers",
    ),
    "too many points for a table": (
        ["--axis", "traffic.prompt=1:9:10000", "--axis", "traffic.output=1:9:10000"],
        "1,400,000,000 points are too many at once",
    ),
    "too many values": (["--axis", "traffic.prompt=1:9:100000000000"], "at most 10,000,000 points"),
}


@pytest.mark.parametrize(("more", "hint"), HOSTILE.values(), ids=HOSTILE.keys())
def test_refused_with_one_line(more, hint, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(cluster, "PATIENCE", 1)
    (tmp_path / "file").write_text("a file")
    for name, content in {"other/notes.txt": "notes", "broken/_sweep.json": "{", "list/_sweep.json": "[]"}.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(content)
    assert run([*SWEEP, *(word.format(tmp=tmp_path) for word in more)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert hint in err
    assert not list(tmp_path.rglob("*.parquet"))
    # A scheduler that does not answer leaves no folder.
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("module", ["distributed", "pyarrow.parquet"])
def test_a_missing_library_is_named(module, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, module, None)
    command = [*SWEEP, "--out", str(tmp_path / "new"), "--executor", "dask", "--keep", "pareto:tpot_s,mfu"]
    assert run(command) == 2
    err = capsys.readouterr().err
    assert "pip install 'perfmodel[distributed]'" in err
    assert len(err.splitlines()) == 1


# --- on a cluster ------------------------------------------------------------------------------------------------


def test_a_worker_killed_amid_the_sweep_costs_no_point(space, whole, dask_cluster, tmp_path):
    place = tmp_path / "place"
    pids = dask_cluster.run(os.getpid)
    killed = []

    def kill():
        wait_for(place, 4)
        killed.append(len(parts(place)))
        os.kill(next(iter(pids.values())), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    address = dask_cluster.scheduler.address
    stored = folder.run(space, place, "asked", executor="dask", scheduler=address, points=POINTS)
    killer.join()
    assert 4 <= killed[0] < PARTS - 2
    assert stored.partitions == len(parts(place)) == PARTS
    same(stored.to_frame(), whole)
    dask_cluster.wait_for_workers(2, timeout=30)
    assert set(dask_cluster.run(os.getpid).values()) != set(pids.values())


@pytest.mark.parametrize("keep", [FRONT, "best:ttft_s:by=concurrency", CHEAP])
def test_reductions_are_those_of_one_process(keep, space, dask_cluster, tmp_path):
    here = folder.run(space, tmp_path / "here", "asked", keep=keep, points=2**12)
    address = dask_cluster.scheduler.address
    there = folder.run(space, tmp_path / "there", "asked", keep=keep, executor="dask", scheduler=address, points=2**12)
    assert there.found == 0
    same(there.to_frame(), here.to_frame())


def test_workers_need_no_file_of_the_client(dask_cluster, tmp_path, monkeypatch):
    chip = tmp_path / "my-chip.yaml"
    chip.write_text("name: my-chip\nextends: dgx-h100\n")
    monkeypatch.chdir(tmp_path)
    axes = {"system": "my-chip.yaml,dgx-b200", "traffic.concurrency": [1.0, 8.0]}
    mine = design_space("llama-3.1-8b", "dgx-h100", axes, Options())
    chip.unlink()
    address = dask_cluster.scheduler.address
    stored = folder.run(mine, tmp_path / "place", "asked", executor="dask", scheduler=address)
    same(stored.to_frame(), mine.evaluate().to_frame())


def test_workers_that_cannot_do_it_are_named(space, dask_cluster, tmp_path, monkeypatch):
    with pytest.raises(UserError, match="does not see /no/such/place"):
        cluster.check(dask_cluster, folder.look, Path("/no/such/place/_sweep.json"))
    monkeypatch.setattr(cluster, "__version__", "9.9")
    with pytest.raises(UserError, match=f"runs perfmodel {perfmodel.__version__}, not 9.9"):
        cluster.check(dask_cluster, folder.look, tmp_path / "_sweep.json")


def test_work_checks_the_machine_that_it_runs_on(space, tmp_path):
    job = folder.Job(tmp_path / "part.parquet", tmp_path / "_sweep.json", space.part(0, 64), None, "", "9.9")
    with pytest.raises(UserError, match=r"one of 9\.9"):
        folder.work(job)
    with pytest.raises(UserError, match="does not see"):
        folder.work(replace(job, version=perfmodel.__version__))


CLIENT = """
    import sys
    from pathlib import Path
    from perfmodel.sweeps import folder
    from perfmodel.question import Options
    from perfmodel.sweeps.asking import space

    if __name__ == "__main__":
        asked = space("llama-3.1-70b", "dgx-h100", {axes}, Options())
        folder.run(asked, Path({place!r}), "asked", keep={keep!r}, executor="dask", workers=1, points={points})
"""


def descendants(pid):
    import psutil

    return psutil.Process(pid).children(recursive=True)


def test_a_killed_client_loses_no_finished_partition(space, tmp_path):
    import psutil

    place = tmp_path / "place"
    script = tmp_path / "client.py"
    script.write_text(textwrap.dedent(CLIENT).format(axes=AXES, place=str(place), keep=CHEAP, points=POINTS))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    client = subprocess.Popen([sys.executable, str(script)], env=environment)
    # One more than the client hands out ahead: so that it has noted at least the first.
    wait_for(place, cluster.AHEAD + 1, alive=lambda: client.poll() is None)
    workers = descendants(client.pid)
    client.kill()
    client.wait()
    # The workers see that they are alone, and end.
    psutil.wait_procs(workers, timeout=30)
    assert not any(worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE for worker in workers)
    before = parts(place)
    # What the client had noted stays; what its worker wrote on alone, for all that it was handed, is worked out again.
    noted = {line.split()[1] for line in (place / folder.DIGESTS).read_text().splitlines()}
    assert 1 <= len(before) - cluster.AHEAD <= len(noted) <= len(before) < PARTS
    again = folder.run(space, place, "asked", keep=CHEAP, points=POINTS)
    assert (again.found, again.broken) == (len(noted), 0)
    after = parts(place)
    assert {name for name in before if after[name] == before[name]} == noted
    same(again.to_frame(), folder.run(space, tmp_path / "whole", "asked", keep=CHEAP, points=POINTS).to_frame())


def test_an_interrupted_sweep_says_how_to_go_on(tmp_path):
    place = tmp_path / "place"
    axes = [
        "system=dgx-h100,dgx-h200,dgx-b200,mi300x-8",
        "traffic=chat,code,rag,agent",
        "deployment.precision=bf16,fp8",
    ]
    axes += ["concurrency=1:256:256", "memory.hbm.bandwidth=x1:x2:64", "electricity=x0:x9:16"]
    command = [sys.executable, str(ROOT / "cli.py"), "sweep", "llama-3.1-70b", "--on", "dgx-h100"]
    command += [word for axis in axes for word in ("--axis", axis)]
    command += ["--keep", "quantiles:usd_per_mtok_blended", "--executor", "dask", "--workers", "1", "--out", str(place)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    client = subprocess.Popen(
        command,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A shell that runs the tests in the background has its children ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    wait_for(place, 1, alive=lambda: client.poll() is None)
    # A terminal sends it to the workers too.
    os.killpg(client.pid, signal.SIGINT)
    _, err = client.communicate(timeout=60)
    assert client.returncode == 130
    assert len(err.splitlines()) == 1
    assert "of 32 partitions are in" in err
    assert "the same command goes on" in err


# --- of one question ---------------------------------------------------------------------------------------------


def leaves(part, path=""):
    """Give the path and value of every number and word of a spec, found by its fields alone."""
    if is_dataclass(part):
        for entry in fields(part):
            if entry.compare:
                yield from leaves(getattr(part, entry.name), f"{path}.{entry.name}")
    elif isinstance(part, dict | tuple):
        for key, value in part.items() if isinstance(part, dict) else enumerate(part):
            yield from leaves(value, f"{path}.{key}")
    elif part is not None:
        yield path[1:], part


def other(value):
    """Return a value that is next to another."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        return value + "'"
    return 1.0 if math.isnan(value) else math.nextafter(value, math.inf)


@pytest.mark.parametrize("on", ["dgx-h100", "lpu-v1", "sn40l-16"])
def test_every_number_and_word_is_in_the_fingerprint(on):
    options = Options(draft="llama-3.2-1b", k=3, accept="0.8,0.7,0.6")
    asked = design_space("llama-3.1-8b", on, {"traffic.concurrency": [1.0, 2.0]}, options)
    found = {folder.fingerprint(asked)}
    corner = asked.corners[0]
    paths = dict(leaves(corner.scenario))
    assert len(paths) > 150
    for path, value in paths.items():
        changed = put(corner.scenario, path, other(value))
        found.add(folder.fingerprint(replace(asked, corners=(replace(corner, scenario=changed),))))
    assert len(found) == len(paths) + 1
    again = design_space("llama-3.1-8b", on, {"traffic.concurrency": [1.0, 2.0]}, options)
    assert folder.fingerprint(again) == folder.fingerprint(asked)


def test_the_version_is_in_the_fingerprint(space, tmp_path, monkeypatch):
    folder.run(space, tmp_path / "place", "asked", keep=CHEAP, points=2**14)
    monkeypatch.setattr(folder, "__version__", "9.9")
    with pytest.raises(UserError, match=f"another sweep, by perfmodel {perfmodel.__version__}: asked;"):
        folder.run(space, tmp_path / "place", "asked", keep=CHEAP, points=2**14)


#: One change of each root, and of parts of them whose ``repr`` is a name.
CHANGES = [
    "memory.hbm.bandwidth=x2",
    "system.efficiency.layer_time=x2",
    "system.engine.block_tokens=32",
    "system.price.system=x2",
    "model.hidden=4608",
    "model.layers.0.mlp.intermediate=x2",
    "traffic.prompt=999",
    "traffic.rounds=3",
    "deployment.dp=2",
    "economics.electricity=x2",
    "speculation.alpha=0.5",
    "speculation.host_time=x2",
]


def test_a_change_of_any_root_is_another_sweep(tmp_path, capsys):
    place = tmp_path / "place"
    command = [
        *SWEEP[:6],
        "--draft",
        "ngram",
        "--k",
        "3",
        "--alpha",
        "0.7",
        "--keep",
        "best:tpot_s",
        "--out",
        str(place),
    ]
    assert run(command) == 0
    files = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    first = json.loads((place / "_sweep.json").read_text())["question"]
    for change in CHANGES:
        capsys.readouterr()
        assert run([*command, "--set", change]) == 2, change
        err = capsys.readouterr().err
        assert len(err.splitlines()) == 1
        assert f"it holds another sweep, by perfmodel {perfmodel.__version__}: {first[:40]}" in err
        assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == files
    assert run(command) == 0


def test_an_edited_file_is_another_sweep(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    chip = (
        "extends: dgx-h100\nname: mine\nmemory: {hbm: {bandwidth: {value: %s, source: plan-choice, kind: derived}}}\n"
    )
    command = ["sweep", "llama-3.1-8b", "--on", "mine.yaml", "--axis", "concurrency=1,8", "--keep", "best:tpot_s"]
    found = {}
    for bandwidth in ("4 TB/s", "8 TB/s"):
        (tmp_path / "mine.yaml").write_text(chip % bandwidth)
        assert run([*command, "--out", bandwidth[0]]) == 0
        found[bandwidth] = pd.read_parquet(bandwidth[0])["tpot_s"][0]
    assert found["8 TB/s"] < found["4 TB/s"]
    assert run([*command, "--out", "4"]) == 2
    assert "another sweep" in capsys.readouterr().err
    assert pd.read_parquet("4")["tpot_s"][0] == found["4 TB/s"]


def test_the_first_question_stays(space, tmp_path):
    import pyarrow.parquet as pq

    place = tmp_path / "place"
    folder.run(space, place, "the first way to ask", points=2**14)
    (place / "part-00001.parquet").unlink()
    folder.run(space, place, "another way", points=2**14)
    assert json.loads((place / "_sweep.json").read_text())["question"] == "the first way to ask"
    for part in place.glob("*.parquet"):
        assert b"the first way" in pq.read_schema(part).metadata[b"perfmodel"]


def truncate(paths):
    paths[1].write_bytes(paths[1].read_bytes()[:-100])


def empty(paths):
    paths[1].write_bytes(b"")


def swap(paths):
    one, two = paths[0].read_bytes(), paths[1].read_bytes()
    paths[0].write_bytes(two)
    paths[1].write_bytes(one)


def flip(paths):
    content = bytearray(paths[1].read_bytes())
    content[len(content) // 2] ^= 1
    paths[1].write_bytes(content)


def flip_the_end(paths):
    content = bytearray(paths[1].read_bytes())
    content[-40] ^= 1
    paths[1].write_bytes(content)


@pytest.mark.parametrize("keep", [None, CHEAP])
@pytest.mark.parametrize(("damage", "broken"), [(truncate, 1), (empty, 1), (swap, 2), (flip, 1), (flip_the_end, 1)])
@pytest.mark.parametrize("finished", [True, False])
def test_a_partition_that_holds_something_else_is_worked_out_again(finished, damage, broken, keep, space, tmp_path):
    place = tmp_path / "place"
    first = folder.run(space, place, "asked", keep=keep, points=2**13)
    expected = first.to_frame()
    paths = sorted(place.rglob("part-*.parquet"))
    if not finished:
        # As it lies there when the client was killed amid the last partition.
        manifest = json.loads((place / "_sweep.json").read_text())
        lines = [f"{manifest['digests'][path.name]} {path.name}" for path in paths]
        (place / folder.DIGESTS).write_text("\n".join([*lines[:-1], lines[-1][:30]]))
        (place / "_sweep.json").write_text(json.dumps({**manifest, "digests": {}, "finished": False}))
    damage(paths)
    again = folder.run(space, place, "asked", keep=keep, points=2**13)
    assert (again.broken, again.found) == (broken, len(paths) - broken - (not finished))
    assert "broken and worked out again" in repr(again)
    same(again.to_frame(), expected)
    manifest = json.loads((place / "_sweep.json").read_text())
    assert manifest["digests"] == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
    assert folder.run(space, place, "asked", keep=keep, points=2**13).broken == 0


def test_what_nobody_wrote_here_is_no_partition(space, tmp_path):
    place = tmp_path / "place"
    expected = folder.run(space, place, "asked", points=2**14).to_frame()
    shutil.copy(place / "part-00000.parquet", place / "part-00007.parquet")
    (place / ".part-00001-1234abcd.partial.parquet").write_bytes(b"PAR1")
    same(folder.run(space, place, "asked", points=2**14).to_frame(), expected)
    assert not (place / ".part-00001-1234abcd.partial.parquet").exists()


def test_one_sweep_at_a_time_writes_a_folder(tmp_path, capsys):
    place = tmp_path / "place"
    axes = ["traffic=chat,code,rag,agent", "concurrency=1:256:256", "memory.hbm.bandwidth=x1:x2:64"]
    command = ["sweep", "llama-3.1-70b", "--on", "dgx-h100", *(word for axis in axes for word in ("--axis", axis))]
    command += [
        "--axis",
        "electricity=0.01 USD/kWh:0.2 USD/kWh:64",
        "--keep",
        "quantiles:usd_per_mtok_blended",
        "--out",
        str(place),
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    writer = subprocess.Popen([sys.executable, str(ROOT / "cli.py"), *command], env=environment, stderr=subprocess.PIPE)
    try:
        wait_for(place, 1, alive=lambda: writer.poll() is None)
        assert run(command) == 2
        err = capsys.readouterr().err
        assert len(err.splitlines()) == 1
        assert f"one sweep at a time writes a folder: process {writer.pid} on " in err
        assert writer.poll() is None
    finally:
        writer.kill()
        writer.communicate()
    # The lock of a killed writer holds nobody up.
    space = asked({"traffic.concurrency": [1.0, 2.0]})
    with pytest.raises(UserError, match="another sweep"):
        folder.run(space, place, "other", keep="best:tpot_s")
    assert not (place / folder.LOCK).exists()


@pytest.mark.parametrize(
    "greeting", [b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", b"\xff\xff\xff\x7f\0\0\0\0"]
)
def test_a_server_that_is_no_scheduler(greeting, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(cluster, "PATIENCE", 1)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet():
            with contextlib.suppress(OSError):
                while True:
                    with server.accept()[0] as client:
                        client.sendall(greeting)

        threading.Thread(target=greet, daemon=True).start()
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        more = ["--executor", "dask", "--scheduler", address, "--out", str(tmp_path / "place")]
        assert run([*SWEEP, *more]) == 2
        server.shutdown(socket.SHUT_RDWR)
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1
    assert "no Dask scheduler answers there" in err
    assert not (tmp_path / "place").exists()
