"""Fields and pencils of other libraries, on the same memory: one module for each library."""
