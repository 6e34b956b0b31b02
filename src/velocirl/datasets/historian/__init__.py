"""Importing the records of a plant: tables of a historian, by a mapping of their columns."""
