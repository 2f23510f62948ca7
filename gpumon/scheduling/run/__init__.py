"""Runs somebody's command on cards that were chosen for it, and tells what came of it.

``child`` starts it in the foreground as a shell would and stays with it; ``terminal`` is the
terminal that the two share; ``members`` knows which processes are its; ``tally`` adds up what they
had of the cards, and ``words`` says so.
"""
