#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Write one man page of section 3 for each function of the headers, from its kernel-doc comment.

usage: mkman.py VERSION OUTDIR HEADER...

Fails when a function has no comment, a parameter no line (or a line no parameter), when nothing is
said about threads, or about the value that a function returns: a page can be neither missing nor
out of step with the header.
"""
import re
import sys
from pathlib import Path

DOC = re.compile(r"/\*\*\n \* (kvctx_\w+)\(\) - (.*?)\n(.*?)\n \*/\n(.*?)(;\n|\n\{)", re.S)
STRUCT = re.compile(r"/\*\*\n \* (struct kvctx_\w+) - .*?\n(.*?)\n \*/", re.S)
FUNCTION = re.compile(r"^(?:static inline )?(?:const |struct |unsigned )*\w+ \**(kvctx_\w+)\(", re.M)
THREADS = ("MT-Safe", "MT-Unsafe", "One submitter")


def fields(part):
    """[name, text] of each line that begins with @name:, and of those that continue it."""
    found = re.findall(r"^@(\w+): (.*?)(?=^@|\Z)", part, re.S | re.M)
    return [[name, " ".join(text.split())] for name, text in found]


def paragraphs(body):
    text = "\n".join(line[3:] for line in body.split("\n"))
    return [part.strip("\n") for part in re.split(r"\n\s*\n", text)]


class Comment:
    """A function's kernel-doc comment taken apart."""

    def __init__(self, name, brief, body, prototype):
        self.name, self.brief = name, brief
        self.prototype = re.sub(r"\s+", " ", prototype.replace("static inline ", ""))
        self.params = []        # [name, text]
        self.text = []          # paragraphs
        self.context = ""
        self.returns = []       # paragraphs
        self.errors = []        # [errno, text]
        self.errors_end = ""    # what follows them
        for part in paragraphs(body):
            self.add(part)
        self.check()

    def add(self, part):
        words = " ".join(part.split())
        if re.match(r"@\w+: ", part):
            self.params = fields(part)
        elif part.startswith("Context: "):
            self.context = words[len("Context: "):]
        elif part.startswith("Return: "):
            self.returns.append(words[len("Return: "):])
        elif part.startswith("* -E"):
            for err, text in re.findall(r"^\* -(E\w+): (.*?)(?=^\* |\Z)", part, re.S | re.M):
                self.errors.append([err, " ".join(text.split())])
        elif self.returns:
            self.errors_end = words
        else:
            self.text.append(words)

    def check(self):
        args = re.search(r"\((.*)\)", self.prototype).group(1)
        declared = [] if args == "void" else re.findall(r"(\w+)(?:,|$)", args)
        documented = [name for name, _ in self.params]
        if documented != declared:
            self.fail(f"documents {documented}, declares {declared}")
        if not self.context.startswith(THREADS):
            self.fail(f"Context: does not begin with one of {THREADS}")
        if bool(re.match(r"void \w", self.prototype)) == bool(self.returns):
            self.fail("says what it returns, or does not, wrongly")

    def fail(self, what):
        sys.exit(f"mkman: {self.name}(): {what}")


def roff(text):
    """Text with references as they stand in kernel-doc."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    text = re.sub(r"[@&](struct )?(\w+)", r"\\fI\1\2\\fP", text)
    text = re.sub(r"\b(kvctx_\w+)\(\)", r"\\fB\1\\fP(3)", text)
    return re.sub(r"^([.'])", r"\\&\1", text)


def listed(items, font):
    out = []
    for name, text in items:
        out += [".TP", f".{font} {name}", roff(text[0].upper() + text[1:]) + "."]
    return out


def structure(name, body):
    """Section about a structure that a function's parameters use."""
    parts = paragraphs(body)
    return ([f'.SS "{name}"'] + listed(fields(parts[0]), "I")
            + [".PP\n" + roff(" ".join(part.split())) for part in parts[1:]])


def page(c, structs, include, version):
    out = [f'.TH {c.name} 3 "" "libkvctx {version}" "Library Functions Manual"',
           ".SH NAME", f"{c.name} \\- {roff(c.brief)}",
           ".SH LIBRARY", "KV cache pages (\\fIlibkvctx\\fP, \\fI\\-lkvctx\\fP)",
           ".SH SYNOPSIS", f".B #include <{include}>", ".PP", f'.BI "{roff(c.prototype)};"']
    if c.params:
        out += [".SH PARAMETERS"] + listed(c.params, "I")
    for name, body in structs:
        if f"{name} " in c.prototype:
            out += structure(name, body)
    if c.text:
        out.append(".SH DESCRIPTION")
        out += ["\n.PP\n".join(roff(p) for p in c.text)]
    if c.returns:
        out += [".SH RETURN VALUE"]
        end = ", or a negative errno."
        for text in c.returns:
            out.append(roff((text[0].upper() + text[1:]).removesuffix(", or").removesuffix("; or"))
                       + (end if c.errors else ""))
    if c.errors:
        out += [".SH ERRORS"] + listed([["\\-" + err, text] for err, text in c.errors], "B")
        if c.errors_end:
            out += [".PP", roff(c.errors_end[0].upper() + c.errors_end[1:])]
    out += [".SH ATTRIBUTES", roff(c.context), ".PP",
            "\\fBkvctx\\fP(7) explains the words. No function may be called from a signal handler."]
    out += [".SH SEE ALSO", ".BR kvctx_strerror (3)," if c.errors else "", ".BR kvctx (7)"]
    return "\n".join(line for line in out if line) + "\n"


def main():
    version, outdir, headers = sys.argv[1], Path(sys.argv[2]), [Path(arg) for arg in sys.argv[3:]]
    outdir.mkdir(parents=True, exist_ok=True)
    for old in outdir.glob("*.3"):
        old.unlink()
    for path in headers:
        header = path.read_text()
        comments = [Comment(*found[:4]) for found in DOC.findall(header)]
        missing = set(FUNCTION.findall(header)) ^ {c.name for c in comments}
        if missing:
            sys.exit(f"mkman: {path.name}: without a comment, or without a function: {sorted(missing)}")
        for c in comments:
            (outdir / f"{c.name}.3").write_text(page(c, STRUCT.findall(header), path.name, version))


if __name__ == "__main__":
    main()
