"""The operating system: processes, containers and the machine, read from ``/proc``.

The interface to its processes is ``ProcessHost``.
"""
