"""The tests themselves: a file for each subject, a class of tests in each."""
