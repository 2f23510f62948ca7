"""The channels by which notices are sent, a class each; ``channels/registry.py`` lists them."""
