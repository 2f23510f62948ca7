"""Playback of a recording: a source for the position, its sampler, and a history that follows.

A rewind queries the live history as of the position (``History.as_of``): a jump costs a few
milliseconds. Only values over time that the history no longer keeps are rebuilt from samples.

A log has no history. One is rebuilt from samples, and it can only move forward. While time passes,
or after a short jump, the samples in between are fed to it; after another jump a new history is
built. This happens twice, both times on the sampling thread: at once as a draft from few samples,
so that a step shows without delay, and then, between samples and aborted by the next jump,
completely:

- from every sample of the last two minutes, and ever fewer samples before, at most
  ``warming.COARSE`` of each stretch that is as long as all the time after it: GPU-hours and charts
  of hours have that accuracy;

- with the start of each ongoing condition of a GPU or process, searched sample by sample, so that
  durations are the same as they were live (``beginnings``);

- never with a gap, or the end of an interval, that the samples do not have. A gap in the recording
  is a gap here too if it is longer than two and a half times the distance of the samples fed.

A condition that began and ended between two coarse samples is missed: a GPU that worked for half a
minute three hours ago may be reported as idle for longer.
"""

from gpumon.recording.playback.player import SPEEDS, Player

__all__ = ["SPEEDS", "Player"]
