"""Runs a command on GPUs chosen for it, and reports the result.

``child`` starts it in the foreground as a shell would and waits for it; ``terminal`` is the
terminal that both share; ``usage`` adds up its use of the GPUs, and ``messages`` reports it.
"""
