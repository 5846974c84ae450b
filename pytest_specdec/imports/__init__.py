"""Verify cost curves out of what others wrote: text in, curves out, every fault with its file and line."""
