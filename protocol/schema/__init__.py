"""The system's messages as other languages read them: written by `make docs`, compared by `make check`."""
