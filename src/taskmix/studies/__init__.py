"""Several runs with a purpose: compare policies, improve one from journals."""
