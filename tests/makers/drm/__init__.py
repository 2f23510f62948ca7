"""Tests of what the backends of AMD and Intel share."""
