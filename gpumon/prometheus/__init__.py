"""A fleet that is read from Prometheus: ``PrometheusFleet``.

Prometheus is only read, by its HTTP API. The metrics are those of NVIDIA's dcgm-exporter, of
nvidia_gpu_exporter, or of ``gpumon exporter``. One thread asks a few questions about all hosts, and
every metric only of hosts that a dashboard shows.

Times of samples are those at which Prometheus scraped them, on this machine's clock; the answer to
a plain query would carry the time of the query, and old values would look new.
"""

from gpumon.prometheus.client import Endpoint, read_endpoint
from gpumon.prometheus.fleet import PrometheusFleet
from gpumon.prometheus.queries import read_match

__all__ = ["Endpoint", "PrometheusFleet", "read_endpoint", "read_match"]
