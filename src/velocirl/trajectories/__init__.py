"""What a policy did, moment by moment, with names and units: recorded, drawn, and judged by how safe it was."""
