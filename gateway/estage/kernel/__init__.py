"""OPID with a kernel (Eq. 13–18): exact, on landmarks, and compact enough for a node."""
