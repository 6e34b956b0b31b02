"""Import of plant records: historian tables, mapped by column."""
