"""Taskmix in the loops of other libraries: one module for each, imported by its own user only."""
