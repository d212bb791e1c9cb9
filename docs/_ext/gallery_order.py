"""The order of the gallery: one table first, then many sites, then the pages of pictures."""

EXAMPLES = (
    "countries",
    "patents",
    "motorcycle",
    "temperature",
    "power",
    "outliers",
    "claims",
    "centres",
    "flights",
    "hospitals",
    "stations",
    "fleet",
    "one_model",
    "sites",
)


class ReadingOrder:
    """Key of a gallery script for sorting: its place in `EXAMPLES`; a script that is not listed comes last."""

    def __init__(self, src_dir: str) -> None:
        self.src_dir = src_dir

    def __call__(self, filename: str) -> tuple[int, str]:
        name = filename.removeprefix("plot_").removesuffix(".py")
        return EXAMPLES.index(name) if name in EXAMPLES else len(EXAMPLES), name
