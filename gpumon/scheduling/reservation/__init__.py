"""Reservations: one lock per GPU, visible to all users of the machine.

``lock_folder`` provides a folder that no user can tamper with, ``locks`` takes and reads the locks,
``queue`` keeps the order of waiting jobs, ``holders`` returns the holders of reservations.
"""
