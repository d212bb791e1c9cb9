"""The command line: ``consilience``."""
