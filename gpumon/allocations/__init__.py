"""Which GPUs a scheduler has given to jobs of this machine."""
