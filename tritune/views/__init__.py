"""views: nouns -> text. The only layer that formats for a reader."""
