"""Self-contained HTML pages: their frame, style and charts."""
