"""Many machines at the same time: ``Fleet`` is the interface, whatever it reads."""
