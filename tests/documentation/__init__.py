"""The pages that people read: their links, the commands and the settings that they name."""
