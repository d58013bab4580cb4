"""The live page: runs and studies of a folder in a browser, while they train."""
