"""Where the state is: the port that every store fulfils, and the stores."""
