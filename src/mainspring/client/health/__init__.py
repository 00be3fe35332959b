"""What is wrong with a store, or will be: for the doctor, and for whoever looks at the overview."""
