"""``gpumon exporter``: serves the newest sample to Prometheus over HTTP.

The sampling thread renders the page, once per sample; scrapes only read it.
"""
