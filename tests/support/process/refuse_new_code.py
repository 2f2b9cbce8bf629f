"""`python refuse_new_code.py COMMAND…`: runs it as MemoryDenyWriteExecute=yes would (Linux 6.3)."""

import ctypes
import os
import sys

PR_SET_NO_NEW_PRIVS = 38
PR_SET_MDWE = 65
UNAVAILABLE = 125


def main() -> None:
    """Never returns."""
    libc = ctypes.CDLL(None, use_errno=True)
    for option in (PR_SET_NO_NEW_PRIVS, PR_SET_MDWE):
        if libc.prctl(option, 1, 0, 0, 0):
            sys.exit(UNAVAILABLE)
    os.execv(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
