"""Making data sets and carrying them: recording, levels, other layouts, historians, figures."""
