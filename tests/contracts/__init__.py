"""What every implementation of an interface has to hold, run over all of them."""
