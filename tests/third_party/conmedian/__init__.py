"""A package of its own that extends the library by its public names: a method, an engine and a family."""
