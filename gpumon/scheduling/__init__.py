<<<<<<< HEAD
"""Which cards to take: requirements, eligibility, the choice among cards that fit, and waiting.

``requirements`` holds what is asked; ``eligibility`` says of each card whether it fits, or why not;
``ranking`` takes the best of those that fit; ``chooser`` joins these; ``lookout`` samples the
cards; ``outputs`` writes the result. ``select``, ``run`` and ``wait`` do the work of the commands.
=======
"""GPU selection: requirements, eligibility, ranking, and waiting.

``requirements`` defines what a user asks for and ``options`` reads it from the command line;
``eligibility`` says for each GPU whether it qualifies, or why not; ``ranking`` chooses the best of
them; ``lookout`` samples the GPUs on request; ``outputs`` writes the result.
>>>>>>> prose
"""
