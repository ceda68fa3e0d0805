"""ARM on a machine that is not ARM: single programs (`make arm`), and whole machines (`make pi`).

Read in this order: `architectures` (their names), `debian` (folders and packages of another
architecture), `programs` (one program at a time), `golden` and `suite` (what they compute); then
`image`, `machine`, `pages`, `trials`, `upkeep`, `with_pip`, `plug` and `crash_points` (machines
that boot, follow the pages, and lose their power).

Right for correctness, meaningless for speed. Needs root, Debian's archive and nothing else.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
"""Where `make wheels deb` leaves what is handed out."""
