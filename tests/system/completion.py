#!/usr/bin/env python3
# completion.py - the completion of every program, in a real bash and, if it is installed, in zsh.
#
# Usage: completion.py BASH_FILE ZSH_FILE ...
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time

WAIT = 60  # seconds; an upper bound
FILES = {os.path.basename(path): path for path in sys.argv[1:]}
# Words before the cursor, and what is offered there: all of these words, and none of those.
CASES = [
    (["unetctl", "ca"], ["capture"], ["all"]),
    (["unetctl", ""], ["endpoints", "ss", "upgrade", "doctor"], ["--ni", "start"]),
    (["unetctl", "capture", "st"], ["start", "stop"], ["list"]),
    (["unetctl", "capture", "start", "--"], ["--write", "--snap", "--ni"], ["--json"]),
    (["unetctl", "top", "--sort", ""], ["messages", "bytes", "drops", "name"], ["--count"]),
    (["unetctl", "--ni", "unix:/x", "ss", "--"], ["--tcp", "--stacks"], ["--sort"]),
    (["unetd", "--print"], ["--print-config"], ["--keeper-fd"]),
    (["unetd", "--log", "d"], ["debug"], ["info"]),
    (["unetd", "--config", ""], [], ["--port", "trace"]),
    (["unet-run", "--lab"], ["--label"], []),
    (["unet-run", "-n", "2", "--", "ls", "--"], [], ["--label"]),
    (["unet-bench", "r"], ["run", "report"], ["list"]),
    (["unet-bench", "run", "--pa"], ["--path"], []),
    (["unet-sockets", "--r"], ["--rule"], []),
    (["unet-agent", "--po"], ["--policy"], []),
    (["unetcat", "--l"], ["--listen"], []),
    (["testbed", "up", "--wire", ""], ["memif", "af_packet"], ["--mtu"]),
    (["testbed", "d"], ["down"], ["up"]),
    (["unet-report", "report", "--q"], ["--quick"], []),
]


def output_of(shell, script):
    return subprocess.run([*shell, script], stdout=subprocess.PIPE, text=True, timeout=WAIT, check=True).stdout.split()


def bash_offers(words):
    quoted = " ".join(f"'{word}'" for word in words)
    return output_of(["bash", "--norc", "-c"], f"""
source {FILES[words[0] + '.bash']}
COMP_WORDS=({quoted}) COMP_CWORD={len(words) - 1}
$(complete -p {words[0]} | sed 's/.* -F \\([^ ]*\\) .*/\\1/')
printf '%s\\n' "${{COMPREPLY[@]}}" """)


def zsh_offers(words):
    """What the script gives to zsh's own functions: words, some with descriptions after a colon."""
    quoted = " ".join(f"'{word}'" for word in words)
    offered = output_of(["zsh", "-f", "-c"], f"""
_describe() {{ print -l -- ${{(P)2}}; }}
_files() {{ }}
offers() {{ local -a words=({quoted}); local CURRENT={len(words)} PREFIX='{words[-1]}'; source {FILES['_' + words[0]]}; }}
offers""")
    return [word.split(":")[0] for word in offered if word.startswith(words[-1])]


def check(shell, offers):
    wrong = []
    for words, wanted, unwanted in CASES:
        offered = offers(words)
        wrong += [f"{shell}: {' '.join(words)}: {each} is not offered" for each in wanted if each not in offered]
        wrong += [f"{shell}: {' '.join(words)}: {each} is offered" for each in unwanted if each in offered]
    return wrong


def typed(keys, wanted):
    """Types at an interactive bash; whether what it echoes then has `wanted`."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["PS1"] = "$ "
        os.environ["TERM"] = "dumb"
        os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
    os.write(terminal, f"source {FILES['unetctl.bash']}\n{keys}".encode())
    seen, end = "", time.monotonic() + WAIT
    while not re.search(wanted, seen) and time.monotonic() < end:
        if select.select([terminal], [], [], 1)[0]:
            seen += os.read(terminal, 4096).decode(errors="replace")
    os.close(terminal)
    os.waitpid(pid, 0)
    return [] if re.search(wanted, seen) else [f"bash on a terminal: {keys!r} gives {seen!r}"]


def main():
    programs = {words[0] for words, *_ in CASES}
    wrong = [f"no case completes {name}" for name in FILES if name.endswith(".bash") and name[:-5] not in programs]
    wrong += check("bash", bash_offers)
    wrong += typed("unetctl dra\t--und\t", r"unetctl drain --undo ")
    if shutil.which("zsh"):
        wrong += check("zsh", zsh_offers)
    print(*wrong, f"{len(CASES)} cases in bash" + (" and zsh" if shutil.which("zsh") else "; there is no zsh"), sep="\n")
    return 1 if wrong else 0


sys.exit(main())
