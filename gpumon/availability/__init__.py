"""Whether a GPU is free, full or sound: the one rule for all rooms."""
