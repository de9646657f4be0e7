"""The servers that the shop talks to, played by the demo: good, busy, slow, broken, and mended at last."""
