"""`mainspring doctor`: looks at everything that has to be right, and says what to do about what is not."""
