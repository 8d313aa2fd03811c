# failure.py - what ends a command with one line on stderr; every module of testbed raises these, __main__.py prints them.


class Failure(Exception):
    """Something did not work: exit status 1."""

    status = 1


class Usage(Failure):
    """The command line cannot mean anything: exit status 2."""

    status = 2
