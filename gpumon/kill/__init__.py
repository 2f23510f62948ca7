"""Ends processes and watches until their memory is back, or says why it is not."""
