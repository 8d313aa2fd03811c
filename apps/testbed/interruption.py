# interruption.py - signals that would end this process: when they do, and what they wait for.
import contextlib
import signal

ENDING = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]

steps = 0  # that are under way, one within the other
waiting = None  # the signal that came meanwhile


def handle(number, _):
    global waiting  # pylint: disable=global-statement
    if steps:
        waiting = number
    else:
        waiting = None
        raise KeyboardInterrupt(number)


def install():
    """From now on they raise KeyboardInterrupt, with their number."""
    for number in ENDING:
        signal.signal(number, handle)


def ignore():
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)


@contextlib.contextmanager
def whole():
    """A short step that is not left half done: a signal counts at its end. Otherwise a process could be started and not yet
    known, or still be making what is just being removed."""
    global steps, waiting  # pylint: disable=global-statement
    steps += 1
    try:
        yield
    finally:
        steps -= 1
        if not steps and waiting is not None:
            number, waiting = waiting, None
            raise KeyboardInterrupt(number)


@contextlib.contextmanager
def undisturbed():
    """They are ignored until the work is done."""
    before = [signal.signal(number, signal.SIG_IGN) for number in ENDING]
    try:
        yield
    finally:
        for number, handler in zip(ENDING, before):
            signal.signal(number, handler)
