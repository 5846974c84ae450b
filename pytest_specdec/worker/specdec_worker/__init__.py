"""What the worker does with llama.cpp; needs only the standard library, numpy and llama_cpp."""
