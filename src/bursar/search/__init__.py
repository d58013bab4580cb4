"""Mixing ratios: the search whose every sample is a whole run."""
