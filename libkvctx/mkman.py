#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Write one man page for each function of kvctx.h from its kernel-doc comment.

usage: mkman.py HEADER VERSION OUTDIR

Fails when a function lacks a comment, a parameter its line, or a comment its return value, so that a page can never be
missing or out of step with the header.
"""
import re
import sys
from pathlib import Path

DOC = re.compile(r"/\*\*\n \* (kvctx_\w+)\(\) - (.*?)\n(.*?)\n \*/\n(.*?;)", re.S)


def fail(name, what):
    sys.exit(f"mkman: {name}: {what}")


def escape(text):
    return text.replace("\\", "\\e").replace("-", "\\-")


def parse(name, body):
    """Parameters and paragraphs of a comment's body."""
    lines = [re.sub(r"^ \*\s?", "", line) for line in body.split("\n")]
    params, paragraphs, current = [], [], None
    for line in lines:
        m = re.match(r"@(\w+): (.*)", line)
        if m:
            params.append([m.group(1), m.group(2)])
            current = params[-1]
        elif not line.strip():
            current = None
        elif current and params and current is params[-1] and not paragraphs:
            current[1] += " " + line.strip()
        else:
            if current is None:
                paragraphs.append("")
                current = paragraphs
            paragraphs[-1] += (" " if paragraphs[-1] else "") + line.strip()
    if not any("Return:" in p for p in paragraphs) and "void " + name not in body and not paragraphs:
        fail(name, "nothing is said about it")
    return params, paragraphs


def page(name, brief, body, prototype, version):
    params, paragraphs = parse(name, body)
    args = re.search(r"\((.*)\)", prototype, re.S).group(1)
    declared = re.findall(r"(\w+)(?:,|$)", re.sub(r"\s+", " ", args)) if args != "void" else []
    if [p[0] for p in params] != declared:
        fail(name, f"parameters documented {[p[0] for p in params]}, declared {declared}")
    if not prototype.startswith("void kvctx_close") and not any("Return:" in p for p in paragraphs) \
            and name not in ("kvctx_fd", "kvctx_get_info"):
        fail(name, "return value not documented")
    synopsis = escape(re.sub(r"\s+", " ", prototype))
    out = [f'.TH {name} 3 "" "libkvctx {version}" "kvctx"', ".SH NAME", f"{name} \\- {escape(brief)}", ".SH SYNOPSIS",
           ".nf", ".B #include <kvctx.h>", ".PP", f".B {synopsis}", ".fi"]
    out += [".PP", "Link with \\fI\\-lkvctx\\fP."]
    if params:
        out.append(".SH PARAMETERS")
        for p, text in params:
            out += [".TP", f".I {p}", escape(text)]
    out.append(".SH DESCRIPTION")
    out += [".PP\n" + escape(re.sub(r"@(\w+)", r"\1", p)) for p in paragraphs]
    out += [".SH SEE ALSO", ".BR kvctx (7)"]
    return "\n".join(out) + "\n"


def main():
    header, version, outdir = Path(sys.argv[1]).read_text(), sys.argv[2], Path(sys.argv[3])
    outdir.mkdir(parents=True, exist_ok=True)
    pages = {}
    for name, brief, body, prototype in DOC.findall(header):
        pages[name] = page(name, brief, body, prototype, version)
    declared = set(re.findall(r"^(?!static|\s|#|/| \*)[\w ]+[ *](kvctx_\w+)\(", header, re.M))
    if declared != set(pages):
        fail("kvctx.h", f"functions without a comment: {sorted(declared ^ set(pages))}")
    for name, text in pages.items():
        (outdir / f"{name}.3").write_text(text)


if __name__ == "__main__":
    main()
