"""Alerts: conditions that the user chooses, and the channels that notify of them."""
