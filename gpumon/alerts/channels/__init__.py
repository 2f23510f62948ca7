"""The channels by which notices are sent, a class each; ``alerts/alert.py`` lists them."""
