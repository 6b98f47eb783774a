"""What the pages under docs say is true: their commands run, generated pages are current, and their words are plain."""
