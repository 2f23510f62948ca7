"""Inference servers: which are known, how to recognise them, and what they report.

Their processes and sockets are found elsewhere: ``gpumon.host`` and ``gpumon.sampling.servers``.
``gpumon.serving.recognition`` is imported where processes are looked up, and
``gpumon.serving.client``, which asks a server, when there is one: findings need the table alone.
"""

from gpumon.serving.engines import ENGINES, Engine

__all__ = ["ENGINES", "Engine"]
