"""The gateway: it follows every sensor's life, pools what nodes learned, and sends them weights."""
