"""Playback of a recording: a source for the position, its sampler, and the history as of it.

A jump costs a few milliseconds: the history of all snapshots of the recording answers as of the
position (``History.as_of``). That of a running gpumon has received them as they were sampled. That
of a log receives them while the log is read once, in the background (``csv.log_reader``); until
this has reached the position, durations are told as far as they are known.

Values over time that the history does not have are drawn from a few samples (``drafts``).
"""

from gpumon.recording.playback.player import SPEEDS, Player
from gpumon.recording.playback.replay import ReplayedMachine

__all__ = ["SPEEDS", "Player", "ReplayedMachine"]
