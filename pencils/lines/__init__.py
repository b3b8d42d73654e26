"""Systems of equations, sums and differences along lines of points, wherever these are cut."""
