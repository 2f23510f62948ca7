"""Playing a tape: a source for its position, who samples it, and a history that fits the position.

In a rewind the history of the present is asked as of the position (``History.as_of``): a jump costs
a few milliseconds. Only values over time that it does not keep for so long are drawn from samples.

Of a log there is no history. One is made of samples, and it only goes forward. So while time
passes, or little of it is passed over, it is fed what lies between; after a jump there is another
one. That is made twice, both times on the sampling thread: at once as a draft from few samples, so
that a step shows before the finger is up again, and then, between samples and given up when the
position jumps on, as it shall be:

- from the last two minutes sample by sample, and ever fewer samples of what was before, at most
  ``warming.COARSE`` of each stretch of time that is as long as all that came after it: GPU-hours
  and charts of hours are as exact as that;
- with the beginnings of what still goes on at the position, for a card or a process, looked up
  sample by sample, so that for how long it has is told as it was live (``beginnings``);
- never so that the history takes for a gap, or the end of a spell, what is none. A gap on the tape
  is one here too where it is longer than two and a half times what lies between the samples fed.

What began and ended unseen between two samples of long ago has not been: of a card that worked
three hours ago for half a minute it may be said that it has been idle for longer.
"""

from gpumon.recording.playback.player import SPEEDS, Player

__all__ = ["SPEEDS", "Player"]
