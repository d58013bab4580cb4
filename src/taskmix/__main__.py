"""`python -m taskmix`: the command line."""

import sys

if __name__ == "__main__":
    # Python puts the working directory first, where a user's queue.py would stand for Python's own.
    if not sys.flags.safe_path:
        sys.path.append(sys.path.pop(0))
    from taskmix.cli import main

    main()
