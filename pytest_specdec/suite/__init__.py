"""The ready-made regression suite for any pair.

Run it with ``pytest --pyargs pytest_specdec.suite --specdec-target TARGET --specdec-draft DRAFT``; without a
draft it drafts by prompt lookup.
"""
