"""Find, describe and derive GGUF model files."""
