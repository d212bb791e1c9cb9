"""The package beside these tests is not the library's: it is imported in processes of its own."""

collect_ignore = ["conmedian"]
