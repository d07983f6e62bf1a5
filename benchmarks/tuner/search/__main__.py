import sys

from benchmarks.tuner.search.benchmark import main

if __name__ == "__main__":
    sys.exit(main())
