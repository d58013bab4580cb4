"""The loop, evaluation, checkpoints, run folders. Importing the room loads no torch."""
