"""Measurements of the plugin itself."""
