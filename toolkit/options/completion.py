"""Completion in bash, zsh and fish: click finds the words, and the scripts here leave files to the shell."""

from __future__ import annotations

from typing import Any

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
)

VARIABLE = "_VERL_DOCTOR_COMPLETE"
"""The variable that the shell sets to request completion: SHELL_complete."""

SHELLS = ("bash", "zsh", "fish")

_BASH = r"""# Completion of verl-doctor in bash. File names complete wherever nothing else does.
%(complete_func)s() {
    local current=${COMP_WORDS[COMP_CWORD]} kind value
    COMPREPLY=()
    while IFS=$'\t' read -r kind value; do
        case $kind in
            plain) COMPREPLY+=("$value") ;;
            file) compopt -o filenames 2>/dev/null
                while IFS= read -r value; do COMPREPLY+=("$value"); done < <(compgen -f -- "$current") ;;
            dir) compopt -o filenames 2>/dev/null
                while IFS= read -r value; do COMPREPLY+=("$value"); done < <(compgen -d -- "$current") ;;
        esac
    done < <(COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD %(complete_var)s=bash_complete "$1" 2>/dev/null)
}
complete -o bashdefault -o default -F %(complete_func)s %(prog_name)s
"""

_ZSH = r"""#compdef %(prog_name)s
# Completion of verl-doctor in zsh. File names complete wherever nothing else does.
%(complete_func)s() {
    local -a words_only described
    local kind value text
    local files=0 folders=0
    while IFS=$'\t' read -r kind value text; do
        case $kind in
            plain) if [[ -n $text ]]; then described+=("${value//:/\\:}:$text"); else words_only+=("$value"); fi ;;
            file) files=1 ;;
            dir) folders=1 ;;
        esac
    done < <(COMP_WORDS="${words[*]}" COMP_CWORD=$((CURRENT - 1)) %(complete_var)s=zsh_complete %(prog_name)s 2>/dev/null)
    (( $#described )) && _describe -V '%(prog_name)s' described
    (( $#words_only )) && compadd -V words -a words_only
    (( folders )) && _files -/
    if (( files )) || (( ! $#described && ! $#words_only && ! folders )); then _files; fi
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    %(complete_func)s "$@"
else
    compdef %(complete_func)s %(prog_name)s
fi
"""

_FISH = r"""# Completion of verl-doctor in fish, which adds file names itself.
function %(complete_func)s
    set -l answer (COMP_WORDS=(commandline -cp) COMP_CWORD=(commandline -t) %(complete_var)s=fish_complete %(prog_name)s 2>/dev/null)
    for line in $answer
        set -l parts (string split \t -- $line)
        if test "$parts[1]" = plain
            echo -e (string join \t -- $parts[2..])
        end
    end
end
complete --command %(prog_name)s --arguments '(%(complete_func)s)'
"""


def _line(item: CompletionItem, *, with_help: bool) -> str:
    """Return one line for the script: the kind, the word and its help, separated by tabs."""
    text = " ".join((item.help or "").split()) if with_help else ""
    return "\t".join(filter(None, (item.type, str(item.value), text)))


class _Bash(BashComplete):
    source_template = _BASH

    def source(self) -> str:
        """Fill in the names. click would start bash to find its version."""
        return ShellComplete.source(self)

    def format_completion(self, item: CompletionItem) -> str:
        return _line(item, with_help=False)


class _Zsh(ZshComplete):
    source_template = _ZSH

    def format_completion(self, item: CompletionItem) -> str:
        return _line(item, with_help=True)


class _Fish(FishComplete):
    source_template = _FISH

    def format_completion(self, item: CompletionItem) -> str:
        return _line(item, with_help=True)


_CLASSES: dict[str, Any] = {"bash": _Bash, "zsh": _Zsh, "fish": _Fish}


def register() -> None:
    """Register these scripts' output format with click."""
    for name, shell in _CLASSES.items():
        add_completion_class(shell, name)


def script(shell: str, command: click.Command) -> str:
    """Return the completion script of a shell."""
    made: ShellComplete = _CLASSES[shell](command, {}, "verl-doctor", VARIABLE)
    return made.source()
