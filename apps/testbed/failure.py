# failure.py - the errors that end a command with one line on stderr. Every module of a program raises these, __main__.py prints them.


class Failure(Exception):
    """An error: exit status 1."""

    status = 1


class Usage(Failure):
    """A wrong command line: exit status 2."""

    status = 2
