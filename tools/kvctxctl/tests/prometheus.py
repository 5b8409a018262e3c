# SPDX-License-Identifier: GPL-2.0
"""The text format of Prometheus, version 0.0.4, read strictly."""
import re

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*"'
SAMPLE = re.compile(rf"({NAME})\{{({LABEL}(?:,{LABEL})*)?\}} (-?[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)")


def parse(text):
    """{name: {labels: value}}; families are there once, with HELP and TYPE before their samples, and no sample twice.
    Those of a histogram have its name with "_bucket" and "_count".
    """
    found, types, name = {}, {}, None
    assert text.endswith("\n")
    for line in text.split("\n")[:-1]:
        if line.startswith("# HELP "):
            name, help_text = line[7:].split(" ", 1)
            assert re.fullmatch(NAME, name) and name not in found and help_text.endswith("."), line
            found[name] = {}
        elif line.startswith("# TYPE "):
            assert line.split()[2] == name and name not in types, line
            types[name] = line.split()[3]
            assert types[name] in ("counter", "gauge", "histogram") and (types[name] == "counter") == name.endswith("_total"), line
            if types[name] == "histogram":
                found.update({name + "_bucket": {}, name + "_count": {}})
        else:
            m = SAMPLE.fullmatch(line)
            ends = ("_bucket", "_count") if types.get(name) == "histogram" else ("",)
            assert m and m.group(1) in [name + e for e in ends] and m.group(2) not in found[m.group(1)], line
            found[m.group(1)][m.group(2)] = float(m.group(3))
    assert set(found) == set(types) | {n + e for n, t in types.items() if t == "histogram" for e in ("_bucket", "_count")}
    return found
