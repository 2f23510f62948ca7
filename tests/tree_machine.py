"""gpumon on a machine whose GPUs are a tree of files: ``python -m tests.tree_machine ROOT …``.

The rest of the command line is gpumon's. ``ROOT`` has ``sys``, ``proc`` and ``dev``, as
``tests/makers/drm/trees.py`` makes them.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

from gpumon.cli import main
from gpumon.makers import machine
from gpumon.system.system import System
from tests.makers.drm.trees import Tree

if TYPE_CHECKING:
    from pathlib import Path

COMMAND = (sys.executable, "-m", "tests.tree_machine")

_OF_MACHINE = ("stat", "meminfo", "loadavg", "uptime", "self")
_OF_PROCESS = ("stat", "status", "comm", "cmdline", "cgroup", "environ", "task", "ns", "exe", "cwd")


def live_tree(root: Path) -> Tree:
    """A tree in which real processes can use the GPUs."""
    tree = Tree(root)
    for name in _OF_MACHINE:
        (tree.proc / name).symlink_to(f"/proc/{name}")
    return tree


def show(tree: Tree, pid: int) -> None:
    """Show a real process in the tree."""
    folder = tree.proc / str(pid)
    if not folder.exists():
        folder.mkdir()
        for name in _OF_PROCESS:
            (folder / name).symlink_to(f"/proc/{pid}/{name}")
        (folder / "fd").mkdir()


def use(tree: Tree, pid: int, node: str, info: str, descriptor: int = 5) -> None:
    """Let a real process use a GPU, or change what the kernel says of its use.

    Args:
        tree: A tree of ``live_tree``.
        pid: The process.
        node: Name of the GPU's node: ``renderD128``.
        info: What ``fdinfo`` says.
        descriptor: The file descriptor.
    """
    show(tree, pid)
    tree.open_file(pid, descriptor, f"/dev/dri/{node}", info)


if __name__ == "__main__":
    root = sys.argv.pop(1)
    system = System(f"{root}/proc", f"{root}/sys", f"{root}/dev")
    machine.this_machine = partial(machine.this_machine, system=system)
    sys.exit(main())
