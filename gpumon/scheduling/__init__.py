"""Which cards to take: what is asked of one, which fit, which of those are best, and the waiting.

``requirements`` says what somebody asks for and ``options`` reads it from a command line;
``judging`` tells of each card why it does not fit, or that it does; ``ordering`` takes the best of
those that do; ``lookout`` looks at the cards when asked; ``outputs`` writes what came of it.
"""
