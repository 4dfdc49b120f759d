"""The options and assignments of `env`."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace

from verl_doctor.toolkit.collectors.launch.wrappers.programs import ASSIGNED
from verl_doctor.toolkit.sources.shell.found import Argument


def behind_env(
    words: list[Argument], assigned: list[Argument], dropped: list[Argument], entered: list[Argument]
) -> list[Argument]:
    """Return the words behind the options and assignments of `env`.

    What these set, drop and enter is added to the lists.
    """
    place = 0
    while place < len(words):
        text = words[place].text or ""
        split = re.match(r"-\w*S|--split-string=?", text)
        if split:
            attached = text[split.end() :]
            rest = words[place + 1 :] if attached else words[place + 2 :]
            line = attached or (words[place + 1].text if place + 1 < len(words) else "") or ""
            try:
                found = [replace(words[place], text=word, written=word) for word in shlex.split(line)]
            except ValueError:
                return []
            return behind_env([*found, *rest], assigned, dropped, entered)
        if text in ("-u", "--unset", "-C", "--chdir"):
            if text in ("-u", "--unset") and place + 1 < len(words):
                dropped.append(words[place + 1])
            if text in ("-C", "--chdir"):
                entered += words[place + 1 : place + 2]
            place += 2
        elif text.startswith("--chdir="):
            entered.append(replace(words[place], text=text.partition("=")[2]))
            place += 1
        elif text.startswith("--unset=") or re.match(r"-u\w", text):
            dropped.append(replace(words[place], text=text.removeprefix("--unset=").removeprefix("-u")))
            place += 1
        elif text.startswith("-"):
            place += 1
        elif ASSIGNED.match(text):
            assigned.append(words[place])
            place += 1
        else:
            break
    return words[place:]
