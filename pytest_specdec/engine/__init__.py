"""The way to llama.cpp: the interface, and the client of the worker process."""
