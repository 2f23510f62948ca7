"""``gpumon wait``: waits for cards or processes, at little cost, and notifies.

``wait`` is the loop and its pace; ``goals`` says whether the cards are there, who holds them and
how long it may take; ``targets`` holds processes until they end; ``notification`` notifies.
"""
