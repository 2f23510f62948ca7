"""Which cards to take: requirements, eligibility, the choice among cards that fit, and waiting.

``requirements`` holds what is asked; ``eligibility`` says of each card whether it fits, or why not;
``ranking`` takes the best of those that fit; ``chooser`` joins these; ``lookout`` samples the
cards; ``outputs`` writes the result. ``select``, ``run`` and ``wait`` do the work of the commands.
"""
