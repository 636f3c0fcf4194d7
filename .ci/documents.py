#!/usr/bin/python3
"""Checks the repository's Markdown files: links, anchors, paths, and the commands that they show.

    .ci/documents.py                 links, anchors and paths
    .ci/documents.py PROGRAMS        commands, too; PROGRAMS is the folder of the built programs, such as target/release
    .ci/documents.py --self-test     test this script

A relative link must lead to a file, and its anchor to a heading. Words in backquotes are checked if they are paths:
those that begin with a folder of the repository or with a crate's name, and those that end in `.rs` or `.py`, which
may be the last part of a path; those in another project begin with its name (OTHER_PROJECTS). SECURITY.md names tests
and failures: each is a function or a text in the sources.

A command is checked if it is one of PROGRAM_NAMES, in a fenced block (sh, bash, console), in a line that is indented by
four blanks and begins with `$ `, or in backquotes: its subcommands and its long options must be in `--help`. Options of
other programs are not checked.

Each finding is printed as FILE:LINE: WHAT. Exit status: 0 without findings, 1 with findings, 2 invalid command line.
"""

import doctest
import functools
import os
import re
import shlex
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM_NAMES = {"ff-bwauth", "ff-demo", "ff-measurer", "ff-sim", "ff-perf", "ff-lab", "ground-truth"}
NOT_OURS = {".git", "target", "node_modules", "__pycache__"}
# Paths that begin with these names are in the sources of other projects.
OTHER_PROJECTS = {"arti", "arti-relay", "chutney", "onionperf", "tor"}
# Programs that start the program that follows their own options.
STARTERS = {"sudo", "runuser", "exec", "time", "nice", "nohup", "env", "setsid", "timeout", "srun"}
SOURCE_ENDINGS = (".rs", ".py")
FENCE = re.compile(r"^ *(```+|~~~+) *(\w*)")
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
CODE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.S)
PATH = re.compile(r"[\w.*{},-]+(/[\w.*{},-]+)*/?")


# --- Text ------------------------------------------------------------------------------------------


def slug(heading):
    """The anchor that GitHub gives a heading.

    >>> slug("9. The `estimate`, and [what](x.md) it means")
    '9-the-estimate-and-what-it-means'
    """
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def alternatives(path):
    """All paths that braces stand for.

    >>> alternatives("a/{b,c}/d.rs")
    ['a/b/d.rs', 'a/c/d.rs']
    """
    braces = re.search(r"\{([^{}]*)\}", path)
    if not braces:
        return [path]
    before, after = path[: braces.start()], path[braces.end():]
    return [whole for part in braces[1].split(",") for whole in alternatives(before + part + after)]


def split_blocks(text):
    """Prose, with blank lines in place of fenced blocks, and the blocks: (language, number of the first line, lines).

    >>> split_blocks("a\\n```sh\\nls\\n```\\nb")
    ('a\\n\\n\\n\\nb', [('sh', 3, ['ls'])])
    """
    prose, blocks, fence = [], [], None
    for number, line in enumerate(text.split("\n"), 1):
        marks = FENCE.match(line)
        if fence is None and marks:
            fence = marks[1]
            blocks.append((marks[2], number + 1, []))
        elif fence is not None and marks and marks[1].startswith(fence) and not marks[2]:
            fence = None
        elif fence is not None:
            blocks[-1][2].append(line)
        else:
            prose.append(line)
            continue
        prose.append("")
    return "\n".join(prose), blocks


def commands_of_block(first, lines):
    """The command lines of a block, with their numbers. With a line that begins with `$ `, lines without a prompt are
    output.

    >>> commands_of_block(1, ["$ a \\\\", "  b", "output", "# ff-sim c"])
    [(1, 'a   b'), (4, 'ff-sim c')]
    >>> commands_of_block(1, ["a", "# a comment"])
    [(1, 'a'), (2, '')]
    """
    with_prompts = any(line.lstrip().startswith("$ ") for line in lines)
    commands, continued = [], False
    for number, line in enumerate(lines, first):
        begin = line.lstrip()
        prompt = begin.startswith("$ ") or begin.startswith("# ") and starts_program(begin[2:].split())
        text = begin[2:] if prompt else "" if begin.startswith("#") else line
        if continued:
            commands[-1] = (commands[-1][0], commands[-1][1] + line.rstrip("\\"))
        elif prompt or not with_prompts:
            commands.append((number, text.rstrip("\\")))
        else:
            continue
        continued = line.endswith("\\")
    return commands


def starts_program(words):
    """Whether the first word is a program of ours, or one that starts it.

    >>> starts_program(["sudo", "-u", "x", "ff-sim"]), starts_program(["a", "comment"])
    (True, False)
    """
    return bool(words) and (Path(words[0]).name in PROGRAM_NAMES | {"cargo"} or words[0] in STARTERS)


def simple_commands(line):
    """The words of each simple command of a shell's line, without redirections.

    >>> simple_commands("A=1 ff-sim x --out=y >z | sort  # why")
    [['A=1', 'ff-sim', 'x', '--out=y'], ['sort']]
    >>> simple_commands("it's")
    []
    """
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.wordchars += "@%:,+[]{}^!…"
    try:
        tokens = list(lexer)
    except ValueError:
        return []
    commands, is_target = [[]], False
    for token in tokens:
        if set(token) <= set("<>&") and set(token) & set("<>"):
            is_target = True
        elif set(token) <= set("();<>|&"):
            commands.append([])
        elif is_target:
            is_target = False
        else:
            commands[-1].append(token)
    return [words for words in commands if words]


def program_and_arguments(words):
    """Our program that a command runs, and its arguments; None for other commands.

    >>> program_and_arguments(["A=1", "runuser", "-u", "x", "--", "ff-bwauth", "status"])
    ('ff-bwauth', ['status'])
    >>> program_and_arguments("cargo run --release -p ff-sim -- ledger".split())
    ('ff-sim', ['ledger'])
    >>> program_and_arguments("systemctl restart ff-bwauth".split())
    """
    words = list(words)
    while words and (re.match(r"\w+=", words[0]) or words[0] in STARTERS):
        starter = words.pop(0)
        if starter in STARTERS:
            if "--" in words and any(word in PROGRAM_NAMES for word in words[words.index("--"):]):
                words = words[words.index("--") + 1:]
            while words and (words[0].startswith("-") or words[0].isdigit()):
                with_value = words.pop(0) in ("-u", "-g", "-n")
                words = words[with_value:]
    if words[:2] == ["cargo", "run"]:
        end = words.index("--") if "--" in words else len(words)
        named = [name for option, name in zip(words, words[1:end]) if option in ("-p", "--package", "--bin")]
        return (named[-1], words[end + 1:]) if named and named[-1] in PROGRAM_NAMES else None
    if words and Path(words[0]).name in PROGRAM_NAMES:
        return Path(words[0]).name, words[1:]
    return None


# --- Programs --------------------------------------------------------------------------------------


class Programs:
    """What the built programs' `--help` says."""

    def __init__(self, folder):
        self.folder = Path(folder)

    @functools.lru_cache(maxsize=None)
    def help(self, words):
        """The help of a program with subcommands; None if it has no such subcommand."""
        run = subprocess.run(
            [self.folder / words[0], *words[1:], "--help"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False, text=True)
        return None if run.returncode else run.stdout

    def problem(self, program, arguments):
        """The first problem of a command; None if it parses."""
        path, at = (program,), 0
        text = self.help(path)
        if text is None:
            return f"{program} --help fails"
        while at < len(arguments) and arguments[at] != "--":
            word = arguments[at]
            at += 1
            if re.match(r"--[a-z]", word):
                name, equals, _ = word.partition("=")
                option = re.search(rf"^ +(?:-\w, )?{re.escape(name)}(?![\w-])(.*)$", text, re.M)
                if not option:
                    return f"{' '.join(path)} has no option {name}"
                at += not equals and option[1].startswith(" <")
            elif re.fullmatch(r"[a-z][a-z0-9-]*", word) and re.search(r"^Commands:$", text, re.M):
                path += (word,)
                text = self.help(path)
                if text is None:
                    return f"{' '.join(path[:-1])} has no command {word}"
        return None


# --- The repository --------------------------------------------------------------------------------


class Repository:
    """All files below a folder, and what its documents say of them."""

    def __init__(self, root, programs=None):
        self.root = Path(root)
        self.programs = programs
        self.findings = []
        self.files, self.folders = set(), {"."}
        for folder, below, names in os.walk(self.root):
            below[:] = [name for name in below if name not in NOT_OURS]
            here = os.path.relpath(folder, self.root)
            self.folders.add(here)
            self.files |= {os.path.normpath(os.path.join(here, name)) for name in names}
        self.all = self.files | self.folders
        # All last parts of the paths of sources: `link/net.rs` of `crates/ff-lab/src/link/net.rs`.
        self.endings = {
            "/".join(parts[index:])
            for parts in (path.split("/") for path in self.files if path.endswith(SOURCE_ENDINGS))
            for index in range(len(parts))}

    def check(self):
        """Checks all documents: the findings, in order."""
        for name in sorted(path for path in self.files if path.endswith(".md")):
            text = (self.root / name).read_text(encoding="utf-8")
            prose, blocks = split_blocks(text)
            self.check_links(name, prose)
            for code in CODE.finditer(prose):
                self.check_code(name, line_of(prose, code.start()), " ".join(code[2].split()))
            self.check_commands(name, prose, blocks)
        return [f"{name}:{line}: {what}" for name, line, what in sorted(set(self.findings))]

    def check_links(self, name, prose):
        """Relative links lead to files, and anchors to headings."""
        for link in LINK.finditer(CODE.sub(blanked, prose)):
            path, _, anchor = link[1].partition("#")
            if re.match(r"\w+:", path):
                continue
            target = os.path.normpath(os.path.join(os.path.dirname(name), path)) if path else name
            if target not in self.all:
                self.found(name, line_of(prose, link.start()), f"the link's file {path} does not exist")
            elif anchor and target.endswith(".md") and anchor not in self.anchors(target):
                self.found(name, line_of(prose, link.start()), f"{target} has no heading #{anchor}")

    @functools.lru_cache(maxsize=None)
    def anchors(self, name):
        """The anchors of a document."""
        prose, _ = split_blocks((self.root / name).read_text(encoding="utf-8"))
        anchors = set(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", prose))
        for heading in re.findall(r"^#{1,6} +(.+?)(?: +#+)?$", prose, re.M):
            plain = slug(heading)
            number = next(number for number in range(len(anchors) + 1)
                          if (f"{plain}-{number}" if number else plain) not in anchors)
            anchors.add(f"{plain}-{number}" if number else plain)
        return anchors

    def check_code(self, name, line, text):
        """Words in backquotes: a path, a command, or in SECURITY.md a test."""
        if Path(name).name == "SECURITY.md" and re.fullmatch(r"(?!ff_)[a-z0-9]+(_[a-z0-9]+){3,}", text):
            if text not in self.source_names():
                self.found(name, line, f"the sources have no function and no text {text}")
        elif PATH.fullmatch(text):
            for path in alternatives(text):
                if self.is_missing(name, path):
                    self.found(name, line, f"the path {path} does not exist")
        elif text.split()[0] in PROGRAM_NAMES:
            self.check_command(name, line, text)

    def is_missing(self, name, path):
        """Whether words look like a path of the repository, and it is not there."""
        path = os.path.normpath(path)
        first, _, rest = path.partition("/")
        here = os.path.dirname(name)
        places = [os.path.normpath(os.path.join(folder, path)) for folder in ("", "crates", here)]
        if "*" in path:
            return bool(rest) and not any(any(self.root.glob(place)) for place in places)
        if any(place in self.all for place in places):
            return False
        if path.endswith(SOURCE_ENDINGS):
            return path not in self.endings and first not in OTHER_PROJECTS
        # Of a folder named `doc` in another place, nothing is known.
        return bool(rest) and (first in self.folders or os.path.join("crates", first) in self.folders)

    @functools.lru_cache(maxsize=None)
    def source_names(self):
        """The names of all Rust and Python functions, and all texts of one word."""
        sources = (self.root / path for path in self.files if path.endswith(SOURCE_ENDINGS))
        return {function or text for source in sources
                for function, text in re.findall(r"\b(?:fn|def) (\w+)|\"(\w+)\"", source.read_text(encoding="utf-8"))}

    def check_commands(self, name, prose, blocks):
        """Commands in fenced blocks and in indented lines with a prompt."""
        for language, first, lines in blocks:
            if language in ("sh", "bash", "console", "shell"):
                for line, text in commands_of_block(first, lines):
                    self.check_command(name, line, text)
        for line, text in enumerate(prose.split("\n"), 1):
            if re.match(r" {4,}\$ ", text):
                self.check_command(name, line, text.lstrip()[2:])

    def check_command(self, name, line, text):
        """Each command of a line: its path if it is one of the repository, its options if the program is ours."""
        for words in simple_commands(text):
            if re.match(r"[\w.-]+/", words[0]) and self.is_missing("", words[0]) and words[0].split("/")[0] != "target":
                self.found(name, line, f"the program {words[0]} does not exist")
            command = self.programs and program_and_arguments(words)
            problem = command and self.programs.problem(*command)
            if problem:
                self.found(name, line, problem)

    def found(self, name, line, what):
        """Notes a finding."""
        self.findings.append((name, line, what))


def line_of(text, offset):
    """The number of the line at an offset."""
    return text.count("\n", 0, offset) + 1


def blanked(code):
    """As many blanks as the code has characters, in the same lines."""
    return re.sub(r"[^\n]", " ", code[0])


# --- Tests and the command line --------------------------------------------------------------------

PROGRAM = """#!/bin/sh
case "$*" in
  --help) printf 'Commands:\\n  run  Run\\n\\nOptions:\\n  -c, --config <FILE>  A file\\n' ;;
  'run --help') printf 'Options:\\n      --once  Once\\n' ;;
  *) exit 2 ;;
esac
"""


class Documents(unittest.TestCase):
    """A small repository with a program."""

    def findings(self, text, name="a.md"):
        """What is found in a document of this text."""
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            (root / "crates/ff-x/src/link").mkdir(parents=True)
            (root / "crates/ff-x/src/link/net.rs").write_text("fn it_is_a_test() {}\n", encoding="utf-8")
            (root / "b.md").write_text("# One\n## Two, `three`\n# One\n", encoding="utf-8")
            (root / name).write_text(text, encoding="utf-8")
            program = root / "target/ff-bwauth"
            program.parent.mkdir()
            program.write_text(PROGRAM, encoding="utf-8")
            program.chmod(0o755)
            return Repository(root, Programs(root / "target")).check()

    def test_what_is_there_gives_no_finding(self):
        """Links, paths and commands that are right."""
        self.assertEqual(self.findings(
            "[b](b.md#two-three) [b](b.md#one-1) [x](https://x.invalid/y) [f](crates/ff-x)\n"
            "`crates/ff-x/src/link/{net,net}.rs` `ff-x/src` `link/net.rs` `net.rs`\n"
            "`crates/*/src` `arti/src/a.rs` `1/2` `[x](y)`\n"
            "`ff-bwauth run --once`\n"
            "```sh\nff-bwauth --config run run --once | x --nothing  # ff-bwauth no\nls target/x\n```\n"
            "```text\nff-bwauth nothing\n```\n"), [])

    def test_what_is_missing_is_found_with_its_line(self):
        """Links, anchors, paths, options and commands that are wrong."""
        self.assertEqual(self.findings(
            "[c](c.md)\n[b](b.md#four)\n`crates/ff-x/src/lin.rs` `ff-x/doc`\n`other.rs`\n\n"
            "```sh\nsudo ff-bwauth run --twice\ncrates/ff-x/build\n```\n\n    $ ff-bwauth walk\n"), [
                "a.md:1: the link's file c.md does not exist",
                "a.md:2: b.md has no heading #four",
                "a.md:3: the path crates/ff-x/src/lin.rs does not exist",
                "a.md:3: the path ff-x/doc does not exist",
                "a.md:4: the path other.rs does not exist",
                "a.md:7: ff-bwauth run has no option --twice",
                "a.md:8: the program crates/ff-x/build does not exist",
                "a.md:11: ff-bwauth has no command walk"])

    def test_security_names_tests_that_exist(self):
        """In SECURITY.md alone."""
        text = "`it_is_a_test` `it_is_no_test` `path_limited`"
        self.assertEqual(self.findings(text, "SECURITY.md"), [
            "SECURITY.md:1: the sources have no function and no text it_is_no_test"])
        self.assertEqual(self.findings(text), [])


def self_test():
    """Runs the tests of this script: whether they pass."""
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(Documents)
    suite.addTests(doctest.DocTestSuite(sys.modules[__name__]))
    return unittest.TextTestRunner().run(suite).wasSuccessful()


def main(arguments):
    """Checks the repository that this script is in: the exit status."""
    if arguments == ["--self-test"]:
        return 0 if self_test() else 1
    if arguments in (["--help"], ["-h"]):
        print(__doc__, end="")
        return 0
    if len(arguments) > 1 or any(argument.startswith("-") for argument in arguments):
        print("documents.py: unknown arguments; .ci/documents.py --help shows how to use it", file=sys.stderr)
        return 2
    programs = Programs(arguments[0]) if arguments else None
    missing = [name for name in sorted(PROGRAM_NAMES) if programs and not (programs.folder / name).is_file()]
    if missing:
        print(f"documents.py: {arguments[0]} has no {', '.join(missing)}: build them first", file=sys.stderr)
        return 2
    findings = Repository(Path(__file__).resolve().parent.parent, programs).check()
    print("\n".join(findings) if findings else "documents: no findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
