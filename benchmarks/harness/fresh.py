"""One measurement in a new process: `fresh.py WORKLOAD CONTENDER`.

Started by `harness.pool`. It imports nothing before the contender does, because imports are part of
what is measured, and prints a literal rather than JSON for the same reason.
"""

import os
import sys


def main() -> None:
    sys.path[0] = os.path.dirname(sys.path[0])
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    workload, contender = sys.argv[1:]
    module = getattr(__import__(f"workloads.{workload}"), workload)
    try:
        reply = {"phases": module.CONTENDERS[contender][1]()}
    except ImportError as error:
        reply = {"missing": f"not installed: {error}"}
    except Exception as error:
        first = (str(error).strip().splitlines() or [""])[0]
        reply = {"failed": f"{type(error).__name__}: {first[:200]}"}
    replies.write(repr(reply))
    replies.close()


main()
