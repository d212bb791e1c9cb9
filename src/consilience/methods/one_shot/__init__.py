"""One-shot aggregation: local fits are combined by optimal transport, then refined in rounds."""

from consilience.methods.one_shot.one_shot import CombinedFit, OneShot

__all__ = ["CombinedFit", "OneShot"]
