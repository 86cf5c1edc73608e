"""Work in a process that is forked from the test's."""

import os
import threading


def run_forked(work):
    """The exit code of a forked process that runs `work`, 1 where it says False; -9 where it hangs."""
    child = os.fork()
    if not child:
        threading.Timer(10, lambda: os.kill(os.getpid(), 9)).start()
        os._exit(0 if work() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
