import sys

from benchmarks.tuner.emulated.benchmark import main

if __name__ == "__main__":
    sys.exit(main())
