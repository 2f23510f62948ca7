"""Dialogs: modal screens that ask before an action."""
