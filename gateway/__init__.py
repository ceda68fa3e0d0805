"""The gateway: it follows every sensor's life, pools what nodes learned, and pushes weights."""
