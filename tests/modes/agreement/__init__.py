"""All modes give the same rows: views full of traps, and random pipelines."""
