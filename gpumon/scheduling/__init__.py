"""The commands ``select``, ``run`` and ``wait``: which GPUs are eligible, chosen and reserved."""
