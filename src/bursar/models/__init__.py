"""What learns: encoders, heads, and the multi-task model. Importing the room loads no torch."""
