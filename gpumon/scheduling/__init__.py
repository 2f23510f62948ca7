"""GPU selection: requirements, eligibility, ranking, and waiting.

``requirements`` defines what a user asks for and ``options`` reads it from the command line;
``eligibility`` says for each GPU whether it qualifies, or why not; ``ranking`` chooses the best of
them; ``lookout`` samples the GPUs on request; ``outputs`` writes the result.
"""
