<<<<<<< HEAD
"""``gpumon wait``: waits for cards or processes, at little cost, and notifies.

``wait`` is the loop and its pace; ``goals`` says whether the cards are there, who holds them and
how long it may take; ``targets`` holds processes until they end; ``notification`` notifies.
=======
"""Waits for GPUs or processes at almost no cost, and notifies the user.

``goals`` checks whether the condition holds and what prevents it; ``targets`` holds processes until
they exit; ``pace`` and ``rates`` define the polling interval and estimate the remaining time;
``notification`` alerts a user who does not look.
>>>>>>> prose
"""
