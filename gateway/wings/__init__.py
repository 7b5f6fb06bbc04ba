"""Wings: parts of the gateway that settings switch on. Switched off, none of their modules is
imported."""
