"""Dataset creation and exchange: recording, levels, other file layouts, historians, summaries and plots."""
