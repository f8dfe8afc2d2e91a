"""``python -m tests.eval.toploc``: compute what is missing, then judge and write the tables."""

from tests.eval.toploc.work import produce


def main() -> None:
    """Run the whole evaluation."""
    print(f"model work: {produce():.0f} s")


if __name__ == "__main__":
    main()
