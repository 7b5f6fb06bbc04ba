"""How a tool is called, one module for each kind of binding."""
