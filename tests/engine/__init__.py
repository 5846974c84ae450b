"""The way to llama.cpp, and what stands in its place."""
