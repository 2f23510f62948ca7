"""The tests of fleets."""
