"""Waits for GPUs or processes at almost no cost, and notifies the user.

``wait`` is the loop and its pace; ``kinds`` lists the conditions; ``goals`` checks whether one
holds, what prevents it and how long it may take; ``targets`` holds processes until they exit.
"""
