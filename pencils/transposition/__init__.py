"""Moving fields between pencils."""
