"""Inference servers: which are known, how to recognise them, and what they report.

Their processes and sockets are found elsewhere: ``gpumon.host`` and ``gpumon.sampling.servers``.
What asks a server is in ``gpumon.serving.client``, which is imported when there is one.
"""

from gpumon.serving.engines import ENGINES, Engine
from gpumon.serving.recognition import Recognised, engine_of, is_helper, recognise

__all__ = ["ENGINES", "Engine", "Recognised", "engine_of", "is_helper", "recognise"]
