# completion.py - makes the completion of a program for bash and zsh from its option table (apps/option_table.h); meson.build runs it.
#
# Usage: completion.py PROGRAM BASH_FILE ZSH_FILE
import os
import shlex
import subprocess
import sys

BASH = r"""# bash completion for @NAME@, made from its option table
@FUNCTION@() {
  local cur=${COMP_WORDS[COMP_CWORD]} command= word choices=
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    [[ $word != -- ]] || return 0
    case "$command $word" in
      @COMMANDS@) command=${command:+$command }$word ;;
    esac
  done
  case "$command ${COMP_WORDS[COMP_CWORD - 1]}" in
@VALUES@
    *)
      case $command in
@CHOICES@
      esac
      ;;
  esac
  COMPREPLY=($(compgen -W "$choices" -- "$cur"))
}
complete -o bashdefault -o default -F @FUNCTION@ @NAME@
"""

ZSH = r"""#compdef @NAME@
# made from the option table of @NAME@
local cur=$PREFIX command= word
local -a choices
for word in "${(@)words[2,CURRENT-1]}"; do
  [[ $word != -- ]] || { _files; return }
  case "$command $word" in
    @COMMANDS@) command=${command:+$command }$word ;;
  esac
done
case "$command ${words[CURRENT-1]}" in
@VALUES@
  *)
    case $command in
@CHOICES@
    esac
    ;;
esac
if (( $#choices )); then _describe @NAME@ choices; else _files; fi
"""


def bash_list(words):
    return shlex.quote(" ".join(words))


def zsh_list(words):
    """Words with descriptions, as _describe takes them."""
    return "(" + " ".join(shlex.quote(word.replace(":", r"\:") + (":" + text if text else "")) for word, text in words.items()) + ")"


def script(template, name, table, as_list):
    words = {}  # command: word: (values, description)
    for command, word, values, text in table:
        words.setdefault(command, {}).setdefault(word, (values, text))
    commands = [f"{command} {word}" for command in words for word in words[command] if not word.startswith("-")]
    values, choices = [], []
    for command, each in words.items():
        for word, (right, _) in each.items():
            if right != "-":  # without known values: names of files
                values.append(f"    '{command} {word}') choices={as_list(dict.fromkeys(filter(None, right.strip('{}').split(',')), ''))} ;;")
        options = {word: text for word, (_, text) in each.items() if word.startswith("-")}
        others = {word: text for word, (_, text) in each.items() if not word.startswith("-")}
        choices.append(f"        '{command}') if [[ $cur == -* ]]; then choices={as_list(options)}; else choices={as_list(others)}; fi ;;")
    for mark, text in (("NAME", name), ("FUNCTION", "_" + name.replace("-", "_")), ("VALUES", "\n".join(values)),
                       ("COMMANDS", " | ".join(f"'{each}'" for each in commands) or "''"), ("CHOICES", "\n".join(choices))):
        template = template.replace(f"@{mark}@", text)
    return template


def main():
    program, bash_file, zsh_file = sys.argv[1:4]
    printed = subprocess.run([program, "--option-table"], stdout=subprocess.PIPE, text=True, check=True).stdout
    table = [line.split("\t") for line in printed.splitlines() if line]
    for path, template, as_list in ((bash_file, BASH, bash_list), (zsh_file, ZSH, zsh_list)):
        with open(path, "w", encoding="utf-8") as file:
            file.write(script(template, os.path.basename(program), table, as_list))


main()
