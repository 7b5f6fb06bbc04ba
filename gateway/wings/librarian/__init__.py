"""The librarian: questions to whole libraries of documents and code."""
