"""Stands in for Keras."""

from . import callbacks as callbacks
