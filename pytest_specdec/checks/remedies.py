"""What to do about a baseline that is another one now, or none."""

from __future__ import annotations


ACCEPT = "accept the new state with --specdec-update=all"
RECORD = "record one with --specdec-update=new"
