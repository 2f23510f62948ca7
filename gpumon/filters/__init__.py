"""The filter language of the ``/`` line and of ``--filter``."""
