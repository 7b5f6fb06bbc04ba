"""`toolgate doctor`: checks of an installation, a module for each area."""
