import sys

from benchmarks.tuner.results.page import main

if __name__ == "__main__":
    sys.exit(main())
