"""The data model and its tables."""
