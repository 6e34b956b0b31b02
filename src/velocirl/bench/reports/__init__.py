"""What people see of a run: in a terminal, as Markdown, as a page; key figures and what to do next."""
