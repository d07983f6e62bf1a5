import sys

from benchmarks.tuner.simulated.benchmark import main

if __name__ == "__main__":
    sys.exit(main())
