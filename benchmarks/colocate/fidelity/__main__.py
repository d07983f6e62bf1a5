import sys

from benchmarks.colocate.fidelity.benchmark import main

if __name__ == "__main__":
    sys.exit(main())
