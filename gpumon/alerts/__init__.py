"""Alerts: what a user wants to be told, and the ways in which it is told."""
