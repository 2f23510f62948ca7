"""Forked and spawned children of a program that watches and measures."""

from __future__ import annotations

from collections.abc import Callable

import pytest

_FORKED = """
import os, time, gpumon

def child():
    began = time.monotonic()
    assert not watch.running
    watch.stop()
    try:
        print(m.gpus)
    except RuntimeError as error:
        assert "forked child" in str(error)
    m.__exit__(None, None, None)
    assert time.monotonic() - began < 1
    assert len(gpumon.snapshot().gpus) == 3
    with gpumon.measure("all") as own:
        pass
    assert len(own.gpus) == 3
    got = []
    with gpumon.watch(got.append, 0.1):
        while not got:
            time.sleep(0.01)

with gpumon.watch(lambda _: None, 0.1) as watch, gpumon.measure(interval=0.1) as m:
    for _ in range(8):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                child()
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(pid, 0)[1] == 0
    assert watch.running
print("done")
"""

_WORKERS = """
import multiprocessing, sys
import gpumon

def work(number):
    return len(gpumon.snapshot().gpus) * number

if __name__ == "__main__":
    with gpumon.measure("all", 0.1) as m:
        with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
            print(pool.map(work, range(4)))
    print(len(m.gpus), m.trouble)
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_in_a_forked_child_they_do_nothing_and_new_ones_work(program: Callable[..., str]) -> None:
    # Python warns of every fork beside threads; it is what data loaders do.
    code = "import warnings; warnings.simplefilter('ignore')\n" + _FORKED
    assert program(code) == "done\n"


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_may_use_them(method: str, program: Callable[..., str]) -> None:
    code = (
        "import runpy, sys, tempfile, pathlib, warnings\nwarnings.simplefilter('ignore')\n"
        "path = pathlib.Path(tempfile.mkdtemp()) / 'job.py'\n"
        f"path.write_text({_WORKERS!r})\nsys.argv = [str(path), {method!r}]\n"
        "import subprocess\n"
        "sys.exit(subprocess.run([sys.executable, *sys.argv]).returncode)"
    )
    assert program(code) == "[0, 3, 6, 9]\n3 None\n"
