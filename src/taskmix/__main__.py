"""`python -m taskmix`: the command line."""

import sys

if __name__ == "__main__":
    # Python puts the working directory first: its queue.py or peft.py would run in place of others.
    if not sys.flags.safe_path:
        del sys.path[0]
    from taskmix.cli import main

    main()
