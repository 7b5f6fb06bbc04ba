"""The console: pages for operators, over the operations of the admin API."""
