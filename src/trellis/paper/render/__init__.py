"""Reports as text: for a terminal, Markdown, CSV, LaTeX."""
