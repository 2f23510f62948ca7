"""The sampling thread, and slow lookups that run beside it."""
