"""Alerts: what is told, and how."""
