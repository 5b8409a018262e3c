#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Write one man page of section 3 for each function of the headers, from its kernel-doc comment.

usage: mkman.py VERSION OUTDIR HEADER...

Each structure that a function takes or gives has a page of section 3type, with the constants that
its fields are made of.

Fails when a function has no comment, a parameter no line (or a line no parameter), when nothing is
said about threads, or about the value that a function returns, or when a structure has no comment,
or a field no line: a page can be neither missing nor out of step with the header.
"""
import re
import sys
from pathlib import Path

DOC = re.compile(r"/\*\*\n \* (kvctx_\w+)\(\) - (.*?)\n(.*?)\n \*/\n(.*?)(;\n|\n\{)", re.S)
STRUCT = re.compile(r"/\*\*\n \* struct (kvctx_\w+) - (.*?)\n(.*?)\n \*/\n(struct \w+ \{\n.*?\n\};)", re.S)
ENUM = re.compile(r"^(enum kvctx_\w+) \{\n(.*?)\n\};", re.S | re.M)
ENUMERATOR = re.compile(r"^\t(KVCTX_\w+)\b[^/\n]*(?:/\* (.*?) ?\*/)?$", re.S | re.M)
ENUM_DOC = re.compile(r"^ \* @(KVCTX_\w+): (.*?)(?=\n \* @|\n \*/)", re.S | re.M)
CONSTANT = re.compile(r"^#define (KVCTX_\w+)[ \t]+[^/\n]*/\* (.*?) ?\*/$", re.S | re.M)
FUNCTION = re.compile(r"^(?:static inline )?(?:const |struct |unsigned )*\w+ \**(kvctx_\w+)\(", re.M)
LIBRARY = "KV cache pages (\\fIlibkvctx\\fP, \\fI\\-lkvctx\\fP)"
THREADS = ("MT-Safe", "MT-Unsafe", "One submitter")


def fields(part):
    """[name, text] of each line that begins with @name:, and of those that continue it."""
    found = re.findall(r"^@(\w+): (.*?)(?=^@|\Z)", part, re.S | re.M)
    return [[name, " ".join(text.split())] for name, text in found]


def plain(constants):
    """[name, text] of what #define or enum names, without the stars in front of a comment's lines."""
    return [[name, " ".join(re.sub(r"\n\s*\*", " ", text).split())] for name, text in constants]


def enumerations(text):
    """{name: [name, text] of each constant}; what is said in front of the enumeration holds as well."""
    before = dict(plain(ENUM_DOC.findall(text)))
    enums = {name: [[c, said or before.get(c, "")] for c, said in plain(ENUMERATOR.findall(body))]
             for name, body in ENUM.findall(text)}
    for name, constants in enums.items():
        if not all(said for _, said in constants):
            sys.exit(f"mkman: {name}: constants without a comment: {[c for c, said in constants if not said]}")
    return enums


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

    def structs(self):
        """Structures that it takes or gives, but the handle."""
        return dict.fromkeys(re.findall(r"struct (kvctx_\w+)", self.prototype))

    def related(self):
        """Functions that its comment speaks of."""
        words = [text for _, text in self.params + self.errors] + self.text + self.returns
        names = re.findall(r"\b(kvctx_\w+)\(\)", " ".join(words + [self.context, self.errors_end]))
        return [name for name in names if name != self.name]

    def fail(self, what):
        sys.exit(f"mkman: {self.name}(): {what}")


def roff(text):
    """Text with references as they stand in kernel-doc."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    text = re.sub(r"[@&](struct )?(\w+(?:\.\w+)?)", r"\\fI\1\2\\fP", text)
    text = re.sub(r"\b(kvctx_\w+)\(\)", r"\\fB\1\\fP(3)", text)
    return re.sub(r"^([.'])", r"\\&\1", text)


def sentence(text):
    """As one, unless it begins with a name of the header."""
    name = text.startswith("enum ") or "_" in text.split()[0]
    return (text if name else text[0].upper() + text[1:]) + "."


def listed(items, font):
    out = []
    for name, text in items:
        out += [".TP", f".{font} {name}", roff(sentence(text))]
    return out


class Structure:
    """A structure, its kernel-doc comment taken apart, and the constants of its header."""

    def __init__(self, found, include, constants, enums):
        self.name, self.brief, body, self.code = found
        self.include, self.constants, self.enums = include, constants, enums
        parts = paragraphs(body)
        self.fields = fields(parts[0])
        self.text = [" ".join(part.split()) for part in parts[1:]]
        declared = re.findall(r"(\w+)(?:\[\w*\])?;", re.sub(r"/\*.*?\*/", "", self.code, flags=re.S))
        if [name for name, _ in self.fields] != declared:
            sys.exit(f"mkman: struct {self.name}: documents {self.fields}, declares {declared}")

    def flags(self):
        """[title, constants] of each enumeration, and each KVCTX_..._*, that a field's line names."""
        words = " ".join(text for _, text in self.fields)
        names = dict.fromkeys(re.findall(r"enum \w+", words))
        if not names.keys() <= self.enums.keys():
            sys.exit(f"mkman: struct {self.name}: speaks of {list(names)}, not all of which are in the headers")
        found = [[name, self.enums[name]] for name in names]
        for start in dict.fromkeys(re.findall(r"KVCTX_\w+_(?=\*)", words)):
            found.append([start + "*", [c for c in self.constants if c[0].startswith(start)]])
        return [[title, some] for title, some in found if some]

    def page(self, users, version):
        out = [f'.TH {self.name} 3type "" "libkvctx {version}" "Library Functions Manual"',
               ".SH NAME", f"{self.name} \\- {roff(self.brief)}",
               ".SH LIBRARY", LIBRARY, ".SH SYNOPSIS", ".nf", f".B #include <{self.include}>", ".PP",
               ".EX", self.code.replace("\\", "\\e"), ".EE", ".fi", ".SH FIELDS"] + listed(self.fields, "I")
        for title, constants in self.flags():
            out += [f'.SS "{title}"'] + listed(constants, "B")
        if self.text:
            out += [".SH DESCRIPTION", "\n.PP\n".join(roff(part) for part in self.text)]
        return "\n".join(out + see_also([[user, "3"] for user in users])) + "\n"


def see_also(pages):
    refs = [f".BR {name} ({section})," for name, section in pages]
    return [".SH SEE ALSO"] + refs + [".BR kvctx (7)"]


def page(c, structs, include, version):
    out = [f'.TH {c.name} 3 "" "libkvctx {version}" "Library Functions Manual"',
           ".SH NAME", f"{c.name} \\- {roff(c.brief)}",
           ".SH LIBRARY", LIBRARY,
           ".SH SYNOPSIS", f".B #include <{include}>", ".PP", f'.BI "{roff(c.prototype)};"']
    if c.params:
        out += [".SH PARAMETERS"] + listed(c.params, "I")
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
    related = dict.fromkeys(name for name in c.related() if name != "kvctx_strerror")
    pages = [[name, "3type"] for name in c.structs() if name in structs] + [[name, "3"] for name in related]
    out += see_also(pages + ([["kvctx_strerror", "3"]] if c.errors else []))
    return "\n".join(out) + "\n"


def main():
    version, outdir, headers = sys.argv[1], Path(sys.argv[2]), [Path(arg) for arg in sys.argv[3:]]
    outdir.mkdir(parents=True, exist_ok=True)
    for old in outdir.glob("*.3*"):
        old.unlink()
    functions, structs = {}, {}
    text = "\n".join(path.read_text() for path in headers)
    constants = plain(CONSTANT.findall(text))
    enums = enumerations(text)
    for path in headers:
        header = path.read_text()
        whole = path.parent / "kvctx.h"
        if path.parent.name == "linux":
            include = f"linux/{path.name}"
        else:
            include = whole.name if whole.exists() and f'"{path.name}"' in whole.read_text() else path.name
        comments = [Comment(*found[:4]) for found in DOC.findall(header)]
        missing = set(FUNCTION.findall(header)) ^ {c.name for c in comments}
        if missing:
            sys.exit(f"mkman: {path.name}: without a comment, or without a function: {sorted(missing)}")
        functions |= {c.name: [c, include] for c in comments}
        structs |= {found[0]: Structure(found, include, constants, enums) for found in STRUCT.findall(header)}
    users = {}
    for c, include in functions.values():
        (outdir / f"{c.name}.3").write_text(page(c, structs, include, version))
        for name in c.structs():
            users.setdefault(name, []).append(c.name)
    for name, of in users.items():
        if name in structs:
            (outdir / f"{name}.3type").write_text(structs[name].page(of, version))


if __name__ == "__main__":
    main()
