"""Studies: what the library promises about its fits, measured; each module is a script."""
