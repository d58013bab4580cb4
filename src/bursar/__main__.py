"""`python -m bursar`: the command line."""

from bursar.cli import main

if __name__ == "__main__":
    main()
