"""What each kind of fact changes in the view."""
