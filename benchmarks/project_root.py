"""Import this first: `gateway` must be the package, not the benchmark of that name beside us.

A script's own folder comes first on the path, so `import gateway` would find `gateway.py` here.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
