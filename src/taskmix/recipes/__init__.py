"""The papers' experiments as study files; `taskmix.studies.reproduce` reads and runs them."""
