"""The processes of another machine, under the promises of the processes of this one.

``gpumon remote`` runs on the machine (``server.py``) and holds its processes there; ``RemoteHost``
(``client.py``) is here and speaks with it over a pair of pipes, such as those of ssh, in the lines
of ``protocol.py``.
"""
