"""A fleet read from Prometheus."""
