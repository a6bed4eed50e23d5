"""Imports files and programs of other libraries."""
