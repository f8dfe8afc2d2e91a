"""Tests of toploc.vectors."""
