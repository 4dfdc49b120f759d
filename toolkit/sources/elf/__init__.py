"""ELF files: headers, symbols, the dynamic loader's search."""
