"""`toolgate import` and the reports of imports."""
