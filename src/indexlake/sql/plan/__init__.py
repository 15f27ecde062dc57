"""What a query asks of which table: its columns, conditions and number of rows, and the scans that give them."""
