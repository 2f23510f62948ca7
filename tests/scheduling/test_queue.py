"""Who came first is served first, and who is gone is not waited for."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from gpumon.scheduling.queue import QueueEntry, tickets

if TYPE_CHECKING:
    import pytest

    from gpumon.scheduling.lock_folder import Folder


def names(folder: Folder) -> list[str]:
    return [ticket.name for ticket in tickets(folder)]


def joined(folder: Folder, wants: bytes) -> QueueEntry:
    entry = QueueEntry(folder)
    entry.join(wants)
    return entry


def test_waiters_are_in_the_order_of_their_arrival(folder: Folder) -> None:
    waiting = [joined(folder, b'{"n":%d}' % n) for n in range(5)]
    assert set(names(folder)) == {one.name for one in waiting}
    times = [ticket.order for ticket in tickets(folder)]
    assert times == sorted(times)
    first = tickets(folder)[0]
    assert (first.uid, first.pid) == (os.geteuid(), os.getpid())
    assert first.wants.startswith(b'{"n":')
    for one in waiting:
        one.close()
    assert tickets(folder) == []
    assert folder.names() == []


def test_a_killed_waiter_loses_its_place_and_leaves_no_file(folder: Folder) -> None:
    left = folder.path / "waiting-1-killed"
    left.write_text('{"pid":1,"wants":{}}')
    assert tickets(folder) == []
    assert left.exists(), "it may be about to be locked"


def test_a_file_that_is_no_queue_entry_is_ignored(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder.path / "waiting-link").symlink_to("/etc/passwd")
    os.mkfifo(folder.path / "waiting-fifo")
    old = folder.path / "waiting-old"
    old.write_text("x")
    waiting = joined(folder, b"{}")
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 3600)
    assert names(folder) == [waiting.name]
    assert not old.exists()
    waiting.close()
