# interruption.py - signals that end this process, and steps that they must not interrupt.
import contextlib
import signal

ENDING = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]

steps = 0  # nested steps that are running
waiting = None  # a signal that came meanwhile


def handle(number, _):
    global waiting  # pylint: disable=global-statement
    if steps:
        waiting = number
    else:
        waiting = None
        raise KeyboardInterrupt(number)


def install():
    """From now on ending signals raise KeyboardInterrupt, with their number."""
    for number in ENDING:
        signal.signal(number, handle)


def ignore():
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)


@contextlib.contextmanager
def whole():
    """A short step that signals do not interrupt; they take effect at its end. Otherwise a process could be started and not yet
    recorded, or still make a part that is just being removed."""
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
    """Ignores ending signals until the work is done."""
    before = [signal.signal(number, signal.SIG_IGN) for number in ENDING]
    try:
        yield
    finally:
        for number, handler in zip(ENDING, before):
            signal.signal(number, handler)
