"""Waits for GPUs or processes at almost no cost, and notifies the user.

``wait`` is the loop and its pace; ``goals`` checks whether the condition holds, what prevents it
and how long it may take; ``targets`` holds processes until they exit; ``notification`` alerts.
"""
