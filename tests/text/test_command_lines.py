"""Command lines on one line, and an option a line."""

from __future__ import annotations

import shlex
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.model.processes import GpuProcess
from gpumon.text.command_lines import (
    SCROLLED,
    command_line,
    fit_command,
    script_of,
    split_command,
)
from gpumon.text.formatting import cell_width, printable
from tests.build import process

CONFIG = "/home/ann/projects/llm/configs/big.yaml"
TRAIN = (
    *("/opt/conda/bin/python", "/home/ann/projects/llm/src/train.py"),
    *("--lr", "3e-4", "--config", CONFIG),
)
DISTRIBUTED = "-m torch.distributed.run --nnodes 8"
TORCHRUN = f"/bin/python3.11 -u {DISTRIBUTED} --rdzv-backend c10d /data/ann/train.py --lr 3e-4"
VLLM = "python -m vllm.entrypoints.openai.api_server --model meta-llama/Llama-3.1-70B --port 8000"


def running(*command: str, name: str | None = "python", visible: bool = True) -> GpuProcess:
    return msgspec.structs.replace(process(visible=visible), command=command, name=name)


def shown(command: str, width: int, offset: int = 0) -> str:
    return fit_command(running(*shlex.split(command)), width, offset).rstrip()


def test_a_command_is_shown_without_the_folder_of_its_program() -> None:
    assert command_line(running("/opt/bin/python", "a.py", "--x")) == "python a.py --x"
    assert command_line(running("/opt/my env/bin/python", "a.py")) == "python a.py"
    assert command_line(running("sshd: ann@pts/0")) == "sshd: ann@pts/0"
    assert command_line(running("./")) == "./"
    assert command_line(running("a\x1b[31m", "b\nc")) == "a\ufffd[31m b c"


def test_what_has_no_arguments_is_shown_by_its_name_and_what_cannot_be_seen_says_so() -> None:
    assert command_line(running(name="nv\x07")) == "[nv\ufffd]"
    assert command_line(running(name=None)) == "–"
    assert command_line(running("a", visible=False)) == "(not visible here)"
    for nobody in (running(), running("a", visible=False)):
        assert fit_command(nobody, 30).rstrip() == command_line(nobody)
        assert fit_command(nobody, 5) == command_line(nobody)[:4] + "…"


@pytest.mark.parametrize(
    ("width", "text"),
    [
        (120, f"python /home/ann/projects/llm/src/train.py --lr 3e-4 --config {CONFIG}"),
        (98, f"python /home/…/llm/src/train.py --lr 3e-4 --config {CONFIG}"),
        (80, "python …/train.py --lr 3e-4 --config /home/ann/projects/llm/configs/big.yaml"),
        (60, "python /home/…/src/train.py --lr 3e-4 --config …/big.yaml"),
        (48, "python …/train.py --lr 3e-4 --config …/big.yaml"),
        (36, "python …/train.py --lr 3e-4 --confi…"),
        (18, "python …/train.py…"),
        (17, "train.py --lr 3e…"),
        (14, "train.py --lr…"),
        (8, "train.p…"),
        (1, "…"),
        (0, ""),
    ],
)  # fmt: skip
def test_folders_go_before_the_script_s_name_and_its_options(width: int, text: str) -> None:
    assert fit_command(running(*TRAIN), width) == text.ljust(width)


@pytest.mark.parametrize(
    ("command", "width", "text"),
    [
        (TORCHRUN, 91, f"python3.11 -u {DISTRIBUTED} --rdzv-backend c10d …/train.py --lr 3e-4"),
        (TORCHRUN, 87, f"python3.11 -u {DISTRIBUTED} … train.py --lr 3e-4"),
        (TORCHRUN, 60, "python3.11 -u -m torch.distributed.run … train.py --lr 3e-4"),
        (TORCHRUN, 50, "python3.11 -u … train.py --lr 3e-4"),
        (TORCHRUN, 20, "train.py --lr 3e-4"),
        (VLLM, 70, "python -m vllm…api_server --model meta-llama/Llama-3.1-70B --port 8000"),
        (VLLM, 60, "python -m …api_server --model …/Llama-3.1-70B --port 8000"),
        ("python /opt/bin/torchrun --nproc-per-node 2 ft.py --lr 1", 30, "python … ft.py --lr 1"),
        ("java -cp /a/b/c.jar -jar /srv/lib/app.jar --port 8", 32, "java … -jar app.jar --port 8"),
        ("./llama-server -m /models/70b/q4.gguf -c 4096", 40, "llama-server -m …/q4.gguf -c 4096"),
        ("python x.py --data=/mnt/sets/imagenet --url http://a/b/c", 50,
         "python x.py --data=…/imagenet --url http://a/b/c"),
        ("python -u -BEIOsS /x/train.py --lr 3e-4", 34, "python -u … train.py --lr 3e-4"),
        ("python a.py /x=b/c/d/e", 16, "python a.py …/e"),
        ("python -c 'import a; print(b / c)'", 20, "python -c import a;…"),
        ("'sshd: ann@pts/0'", 14, "sshd: ann@pts…"),
        ("python a.py", 80, "python a.py"),
    ],
)  # fmt: skip
def test_what_stands_before_the_script_goes_before_what_follows_it(
    command: str, width: int, text: str
) -> None:
    assert shown(command, width) == text


def test_a_line_is_scrolled_whole_and_shows_that_it_is() -> None:
    command = "python /home/ann/train.py --lr 1"
    assert shown(command, 40, 1) == "‹thon /home/ann/train.py --lr 1"
    assert shown(command, 12, 7) == "‹home/ann/t…"
    assert shown(command, 12, 30) == "‹1"
    assert shown(command, 12, 31) == shown(command, 12, 999) == SCROLLED
    assert shown("python 模型.py", 8, 7) == "‹ 型.py"
    assert fit_command(running(visible=False), 20, 5) == "‹isible here)".ljust(20)


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("python train.py --x", "train.py"),
        ("/usr/bin/python3.12 -u -W ignore -Xdev train.py", "train.py"),
        ("python -Bm pkg.mod --x", "-Bm pkg.mod"),
        ("python -mpkg.mod train.py", "-mpkg.mod"),
        ("python -c 'import a' train.py", None),
        ("python -", None),
        ("python -m", None),
        ("python", None),
        ("python -m ipykernel_launcher -f /run/kernel-8a.json", "-m ipykernel_launcher"),
        ("bash -o pipefail -e run.sh a", "run.sh"),
        ("bash -lc 'python train.py'", None),
        ("sh", None),
        ("node --inspect -r dotenv app.mjs x", "app.mjs"),
        ("node -e 1", None),
        ("java -Xmx4g -cp a:b org.Main x", "org.Main"),
        ("java -cp a -jar app.jar", "-jar app.jar"),
        ("java -jar", None),
        ("Rscript --vanilla fit.R a.csv", "fit.R"),
        ("julia -t 4 --project=. fit.jl", "fit.jl"),
        ("perl -w -ne print x", None),
        ("ruby -I lib run.rb", "run.rb"),
        ("torchrun --nproc-per-node 2 ft.py --lr 1", "ft.py"),
        ("torchrun --standalone -m pkg.train", "-m pkg.train"),
        ("python /opt/bin/torchrun --nproc-per-node 2 ft.py", "ft.py"),
        ("python /opt/bin/torchrun --help", "/opt/bin/torchrun"),
        ("accelerate launch --config_file a.yaml src/train.py", "src/train.py"),
        ("python -m torch.distributed.launch --nproc_per_node=2 a/b.py", "a/b.py"),
        ("mpirun -np 4 -x A=b python -u train.py", "train.py"),
        ("mpirun -np 4 python -c pass", None),
        ("mpirun -np 4 ./xhpl", None),
        ("mpirun -np 4 bash -o pipefail run", "run"),
        ("nohup torchrun -m", None),
        ("python -m pkg", "-m pkg"),
        ("nohup uv run train.py", "train.py"),
        ("papermill in.ipynb out.ipynb", "in.ipynb"),
        ("./llama-server -m model.gguf", None),
        ("vim train.py", None),
        ("", None),
    ],
)
def test_the_script_that_runs_is_found(command: str, script: str | None) -> None:
    assert script_of(shlex.split(command)) == script


def test_a_whole_command_has_an_option_with_its_values_on_a_line() -> None:
    command = shlex.split(
        "/opt/bin/python -m torch.distributed.run --nproc-per-node 2 train.py data out "
        "--gpus 0 1 -1 --name 'my run' lr=3e-4 seed=7 --flag"
    )
    assert split_command(command, 60) == [
        "/opt/bin/python",
        "  -m torch.distributed.run",
        "  --nproc-per-node 2",
        "  train.py data out",
        "  --gpus 0 1 -1",
        "  --name 'my run'",
        "  lr=3e-4",
        "  seed=7",
        "  --flag",
    ]


def test_a_beginning_that_fits_stays_on_one_line() -> None:
    assert split_command(["python", "-u", "a.py", "--x", "1"], 40) == ["python -u a.py", "  --x 1"]
    assert split_command(["./serve", "--port", "80"], 40) == ["./serve", "  --port 80"]
    assert split_command(["python", "-u", "a.py"], 14) == ["python -u a.py"]
    assert split_command(["python", "-u", "a.py"], 13) == ["python", "-u", "a.py"]
    assert split_command(["a", "--x", "1234567890123"], 20)[1:] == ["  --x 1234567890123"]
    assert split_command(["a", "--x", "123456789"], 16)[1:] == ["  --x 123456789"]
    assert split_command([], 40) == []
    assert split_command(["a"], 0) == []


def test_a_long_value_goes_on_in_the_next_line() -> None:
    assert split_command(["./a", "--one", "x" * 30, "two"], 20) == [
        "./a",
        "  --one",
        "    " + "x" * 16,
        "    " + "x" * 14,
        "    two",
    ]
    assert split_command(["模型"], 4) == ["'模", "型'"]
    assert split_command(["模"], 1) == ["'", "…", "'"]


def test_shortening_is_cheap_enough_to_draw_with() -> None:
    commands = [running(*TRAIN, str(number)) for number in range(200)]
    spent = []
    for _ in range(3):
        begin = time.thread_time()
        for one in commands:
            fit_command(one, 48)
        spent.append((time.thread_time() - begin) / len(commands))
    # Measured at 0.4 µs where it was drawn before, 30 µs at first.
    assert min(spent) < 20e-6


words = st.text(
    st.sampled_from("ab-/.=m py模👍🏽\u0301\u200b\x1b\n'\"") | st.characters(exclude_categories=[]),
    max_size=12,
)
programs = st.sampled_from(
    ["python", "/usr/bin/python3", "bash", "java", "torchrun", "mpirun", "/opt/bin/accelerate"]
)
arguments = st.lists(
    st.one_of(
        words,
        programs,
        st.sampled_from(
            ["-m", "-c", "-jar", "--lr", "-1", "train.py", "a/b/c/d.py", "x=/a/b/c", "-"]
        ),
    ),
    max_size=10,
)
commands = st.builds(lambda first, rest: (*first, *rest), st.lists(programs, max_size=1), arguments)


@given(commands, st.integers(0, 90), st.sampled_from([0, 0, 1, 2, 7, 30]))
def test_a_command_takes_exactly_its_cells(
    command: tuple[str, ...], width: int, offset: int
) -> None:
    line = fit_command(running(*command), width, offset)
    assert cell_width(line) == width
    assert printable(line) == line


@given(commands, st.integers(0, 60))
def test_what_fits_is_shown_as_it_is(command: tuple[str, ...], room: int) -> None:
    one = running(*command)
    whole = command_line(one)
    assert fit_command(one, cell_width(whole) + room) == whole + " " * room


@given(st.lists(st.text("abc/-", min_size=1, max_size=9), max_size=8), st.integers(16, 60))
def test_the_script_s_name_stays(flags: list[str], width: int) -> None:
    command = ("python", *(f"-X{flag}" for flag in flags), "/srv/ann/runs/deep/train.py", *flags)
    assert "train.py" in fit_command(running(*command), width)


@given(commands, st.integers(1, 60))
def test_a_split_command_keeps_to_its_width_and_loses_nothing(
    command: tuple[str, ...], width: int
) -> None:
    lines = split_command(command, width)
    assert all(cell_width(line) <= width and printable(line) == line for line in lines)
    if width > 1:
        quoted = "".join(shlex.quote(printable(word)) for word in command)
        assert "".join(lines).replace(" ", "") == quoted.replace(" ", "")


@given(commands)
def test_a_script_is_among_the_arguments(command: tuple[str, ...]) -> None:
    script = script_of(command)
    assert script is None or script in " ".join(command)


def test_a_row_of_launchers_without_end_is_read() -> None:
    assert script_of(["mpirun"] * 5000) is None
    assert cell_width(fit_command(running(*["srun"] * 800, "python", *["/a/b"] * 800), 40)) == 40
