"""Dialogs: modal screens that ask before something is done."""
