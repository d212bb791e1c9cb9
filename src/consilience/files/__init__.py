"""Files of results: a fitted model as readable JSON with a published schema."""

from consilience.files.saved_model import SavedFit, SavedModel

__all__ = ["SavedFit", "SavedModel"]
