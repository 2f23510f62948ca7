"""What has been seen so far: values over time, how long things have held, and who holds memory.

A ``History`` is told every snapshot, once, in the order in which they came, by whoever samples; the
screen asks it from another thread. It answers four kinds of questions:

- values over time of every card, of every process and of the machine (``series.py`` says how
  finely);
- spells: since when a named condition has held for a card (``findings`` names the conditions), and
  since when a process has rested;
- holdings: what the processes hold of a card, by the newest process list;
- for how long each user has had cards.

Memory is bounded; measured with tracemalloc, a card with ``CHARTED`` comes to 890 kB, the machine
to 21 kB, a process with ``PROCESS_CHARTED`` to 4 kB after a minute, 34 kB after an hour and 132 kB
from half a day on. Eight cards and a hundred processes that live for days are 21 MB. Where there
are many processes only those with the most GPU memory have values over time:
``PROCESSES_CHARTED``, and never more than ``PROCESSES_KEPT``. Of processes that have ended,
``GONE_KEPT`` at most are remembered, for ``GONE_SECONDS`` at most; of cards ``CARDS_KEPT``, or
twice as many as there are. Holdings count every process.

Times are the wall clock's, as in the snapshots. Where that clock steps back, all that was seen
before is moved back with it, so that ages stay right and nothing is out of order; less than
``STEP`` is taken for the same moment. A step forward cannot be told from a machine that slept: it
is a gap.
"""

from gpumon.history.holdings import Holding
from gpumon.history.past import (
    CARD_DEPTH,
    CARDS_KEPT,
    CHARTED,
    GONE_KEPT,
    GONE_SECONDS,
    HOST_CHARTED,
    OLD_AFTER,
    PATIENCE,
    PROCESS_CHARTED,
    PROCESS_DEPTH,
    PROCESSES_CHARTED,
    PROCESSES_KEPT,
    STEP,
    USERS_KEPT,
    XIDS_KEPT,
    History,
)
from gpumon.history.spells import Condition, Spell
from gpumon.history.standing import Standing

__all__ = [
    "CARDS_KEPT",
    "CARD_DEPTH",
    "CHARTED",
    "GONE_KEPT",
    "GONE_SECONDS",
    "HOST_CHARTED",
    "OLD_AFTER",
    "PATIENCE",
    "PROCESSES_CHARTED",
    "PROCESSES_KEPT",
    "PROCESS_CHARTED",
    "PROCESS_DEPTH",
    "STEP",
    "USERS_KEPT",
    "XIDS_KEPT",
    "Condition",
    "History",
    "Holding",
    "Spell",
    "Standing",
]
