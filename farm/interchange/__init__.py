"""Measurements in from other tools, estimates out to them. docs/interchange.md says what each format carries."""
