"""GPU selection: requirements, eligibility, ranking, and waiting.

``requirements`` defines what a user asks for; ``eligibility`` says for each GPU whether it
qualifies, or why not; ``ranking`` chooses the best of them; ``chooser`` joins these;
``gpu_sampler`` samples the GPUs; ``outputs`` writes the result. ``select``, ``run`` and ``wait``
do the work of the commands.
"""
