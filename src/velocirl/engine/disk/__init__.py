"""Files: their directories, safe reading of files from others, and atomic writing."""
