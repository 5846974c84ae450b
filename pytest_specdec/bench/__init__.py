"""Measuring procedures, their schedule, and the session's cache of what was measured."""
