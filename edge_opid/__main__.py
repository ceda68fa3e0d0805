"""`python -m edge_opid` is `opid-node`."""

import sys

from edge_opid.cli import main

if __name__ == "__main__":
    sys.exit(main())
