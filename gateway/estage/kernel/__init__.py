"""OPID with a kernel (Eq. 13–18): exact, and on landmarks, compact enough for a node."""
