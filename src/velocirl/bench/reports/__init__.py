"""Reports of a run: terminal, Markdown and HTML, with key figures and recommendations."""
