import sys

from benchmarks.tuner.memory.benchmark import main

if __name__ == "__main__":
    sys.exit(main())
