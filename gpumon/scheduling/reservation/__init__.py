"""Reservations: a lock for each card, visible to all users of the machine.

``lock_folder`` finds a folder that no user can tamper with, ``locks`` takes and reads the locks,
``queue`` keeps the order of waiting jobs, ``holders`` tells who has reserved which card.
"""
