"""Mixtures of data sets for the trainers of other libraries, one module for each library."""
