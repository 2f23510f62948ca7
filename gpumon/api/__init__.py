"""The functions for Python programs; ``gpumon`` itself has their names. ``docs/python.md``.

They import no Textual. None of them does anything in a forked child with what its parent started:
threads do not live on in a child. A child may use them anew.
"""
