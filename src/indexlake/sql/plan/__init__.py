"""What a query needs from each table: its columns, conditions and number of rows, and the scans that provide them."""
