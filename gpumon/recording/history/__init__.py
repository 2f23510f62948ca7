"""History: values over time, durations of conditions, and the holders of GPU memory.

The sampling thread adds every snapshot to a ``History``, once and in order; the screen queries it
from another thread. It answers four kinds of questions:

- values over time of every GPU, every process, every user and the machine (``series.py`` defines
  the resolution);
- intervals: since when a named condition has held for a GPU (``findings`` names the conditions),
  and since when a process has been idle;
- holdings: what the processes hold of a GPU, from the newest process list;
- the GPU-seconds of each user.

``History.as_of`` answers the same questions, by the same code, as of an earlier snapshot: values in
the resolution that is still kept, and durations from the past intervals, of which
``intervals.INTERVALS_KEPT`` are kept, the newest and the longest. Start and idle times are kept for
``PAST_KEPT`` processes that have exited.

Memory is bounded (``docs/decisions/0006-past-in-memory.md`` has the sizes). Where there are many
processes, only those with the most GPU memory have values over time: ``PROCESSES_CHARTED``, and
never more than ``PROCESSES_KEPT``. Of processes that have ended, the values of ``GONE_KEPT`` are
kept for ``GONE_SECONDS``; of GPUs ``GPUS_KEPT``, or twice as many as there are; of users
``USERS_CHARTED``. Holdings count every process.

Times are wall-clock times, as in the snapshots. If that clock steps back, everything seen before is
moved back with it, so that ages stay right and times stay in order; a step of less than ``STEP``
counts as the same moment. A step forward cannot be distinguished from a suspend: it is a gap.
"""

from gpumon.recording.history.history import History, HistoryView, ViewedSeries
from gpumon.recording.history.holdings import Holding
from gpumon.recording.history.intervals import Condition, Interval, ServerCondition
from gpumon.recording.history.observations import (
    CHARTED,
    GONE_KEPT,
    GONE_SECONDS,
    GPU_DEPTH,
    GPUS_KEPT,
    HOST_CHARTED,
    LOG_GPU_DEPTH,
    OLD_AFTER,
    PAST_KEPT,
    PROCESS_CHARTED,
    PROCESS_DEPTH,
    PROCESSES_CHARTED,
    PROCESSES_KEPT,
    SERVER_CHARTED,
    STATE_GPU_DEPTH,
    STEP,
    USERS_KEPT,
    XIDS_KEPT,
)
from gpumon.recording.history.records import PATIENCE, USER_CHARTED, USERS_CHARTED
from gpumon.recording.history.standing import Standing

__all__ = [
    "CHARTED",
    "GONE_KEPT",
    "GONE_SECONDS",
    "GPUS_KEPT",
    "GPU_DEPTH",
    "HOST_CHARTED",
    "LOG_GPU_DEPTH",
    "OLD_AFTER",
    "PAST_KEPT",
    "PATIENCE",
    "PROCESSES_CHARTED",
    "PROCESSES_KEPT",
    "PROCESS_CHARTED",
    "PROCESS_DEPTH",
    "SERVER_CHARTED",
    "STATE_GPU_DEPTH",
    "STEP",
    "USERS_CHARTED",
    "USERS_KEPT",
    "USER_CHARTED",
    "XIDS_KEPT",
    "Condition",
    "History",
    "HistoryView",
    "Holding",
    "Interval",
    "ServerCondition",
    "Standing",
    "ViewedSeries",
]
