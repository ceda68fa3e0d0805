"""Become another program that ends when its parent does: `python leash.py PROGRAM ARGUMENTS`.

Linux sends a process a signal when its parent is gone, if it asked for it, and the wish outlives
`exec`. Without it a demo that is killed by SIGKILL would leave a fleet behind. Elsewhere it only
becomes the other program. It imports nothing of ours, so that it is quick.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ask for the signal, then be somebody else."""
    parent = os.getppid()
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it went while we were asking
            sys.exit(1)
    os.execv(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
