"""Files and programs of other libraries, read into Nova's own forms."""
