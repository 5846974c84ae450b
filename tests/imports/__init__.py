"""A package, so that its file names need not be unique among all tests."""
