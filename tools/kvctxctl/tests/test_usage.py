# SPDX-License-Identifier: GPL-2.0
"""The command line: help, usage errors, values, completion, man page."""
import os
import re
import shutil
import subprocess

import tool
from tool import USAGE, bad, good, real, run

COMMANDS = ["pool format", "pool scan", "pool attach", "pool detach", "pool destroy", "pool add", "pool rejoin", "pool remove",
            "pool list", "pool show", "pool set",
            "tenant add", "tenant set", "tenant remove", "tenant list", "tenant show", "tenant stat", "connect", "disconnect", "status", "doctor",
            "stat", "top", "events", "exporter", "check", "dump", "probe", "load", "unload", "version", "help"]


def test_help():
    r = good("--help")
    listed = re.findall(r"^  ((?:\w+ )?\w+)  +\w", r.out.split("Commands:")[1].split("Options:")[0], re.M)
    assert listed == COMMANDS, r
    assert r.out == good("-h").out
    assert "Exit status" in r.out


def test_help_of_every_command():
    for name in COMMANDS:
        r = good(*name.split(), "--help")
        assert r.out.startswith(f"Usage: kvctxctl {name}"), r
        assert "Example:\n  kvctxctl " + name in r.out and "--output" in r.out, r
        assert max(len(line) for line in r.out.splitlines()) <= 110, r
        # Help comes whatever else is said, and asks nobody
        assert good("-h", *name.split(), "word", "-o", "json").log == []


def test_help_of_a_noun():
    r = good("pool", "--help")
    assert re.findall(r"^  pool (\w+) ", r.out, re.M) == [
        "format", "scan", "attach", "detach", "destroy", "add", "rejoin", "remove", "list", "show", "set"], r
    assert re.findall(r"^  tenant (\w+) ", good("--help", "tenant").out, re.M) == ["add", "set", "remove", "list", "show", "stat"]


def gets_past_the_parser(example):
    """Somebody's example, with users that are here, and nothing that goes on for ever"""
    if "--watch" in example:
        example += " --count 1"
    words = [{"vllm": "root", "5": "0.1", "9585": "/none/socket"}.get(w, w) for w in example.split()]
    assert run(*words).status != USAGE, example


def test_examples_are_accepted():
    for name in COMMANDS:
        gets_past_the_parser(good(*name.split(), "--help").out.split("Example:\n  kvctxctl ")[1].splitlines()[0])


def test_examples_of_the_page_are_accepted():
    page = open(os.path.join(tool.OUT, "share/man/man8/kvctxctl.8")).read().replace("\\-", "-")
    examples = re.findall("^kvctxctl (.*)$", page.split(".SH EXAMPLES")[1].split(".SH")[0], re.M)
    assert len(examples) > 15
    for example in examples:
        gets_past_the_parser(example)


def test_no_command():
    bad(USAGE, "none given")
    bad(USAGE, ["frob", "no such command"], "frob")
    bad(USAGE, ["pool", "needs a verb"], "pool")
    bad(USAGE, ["pool", "frob", "no such verb"], "pool", "frob")
    bad(USAGE, "frob", "frob", "--help")
    bad(USAGE, "none given", "-o", "json")


def test_arguments():
    for name, least, most in (("pool format", 2, None), ("pool scan", 0, None), ("pool attach", 1, None),
                              ("pool detach", 1, 1), ("pool destroy", 1, None),
                              ("pool list", 0, 0), ("pool show", 1, 1), ("tenant add", 2, 2),
                              ("tenant remove", 2, 2), ("tenant list", 0, 1), ("tenant show", 2, 2), ("tenant stat", 0, 2), ("stat", 0, 1), ("top", 0, 1), ("events", 0, 1), ("exporter", 0, 0), ("check", 1, None),
                             ("dump", 1, None), ("load", 0, 0), ("status", 0, 0), ("doctor", 0, 0), ("probe", 1, 1),
                              ("unload", 0, 0), ("version", 0, 0), ("help", 0, 2)):
        for n in range(least):
            bad(USAGE, "missing", *name.split(), *["word"] * n)
        if most is not None:
            bad(USAGE, "one argument too many", *name.split(), *["word"] * (most + 1))


def test_hint_names_the_command():
    def hint(*args):
        return run(*args).err.splitlines()[-1]

    assert hint("tenant", "add", "p", "t", "--mode", "999") == "Try 'kvctxctl tenant add --help'."
    assert hint("pool", "list", "--frob") == "Try 'kvctxctl pool list --help'."
    assert hint("--frob", "pool", "list", "-o") == "Try 'kvctxctl pool list --help'."
    assert hint("pool", "frob") == hint("pool") == "Try 'kvctxctl pool --help'."
    assert hint("frob") == "Try 'kvctxctl --help'."
    assert bad(USAGE, "missing", "pool", "show").err.endswith("Try 'kvctxctl pool show --help'.\n")


def test_required_options():
    bad(USAGE, ["--transport", "missing"], "connect", "-n", "nqn.x")
    bad(USAGE, ["--nqn", "missing"], "connect", "-t", "tcp", "-a", "192.0.2.1")
    bad(USAGE, ["--nqn", "missing"], "disconnect")


def test_unknown_options():
    bad(USAGE, ["--frob", "no such option"], "pool", "list", "--frob")
    bad(USAGE, ["-z", "no such option"], "pool", "list", "-z")
    bad(USAGE, ["--frob", "no such option"], "pool", "list", "--frob=1")


def test_options_of_other_commands():
    bad(USAGE, ["--force", "not an option of this command"], "pool", "list", "--force")
    bad(USAGE, ["--nqn", "not an option of this command"], "stat", "--nqn", "x")
    bad(USAGE, ["--version", "not an option of this command"], "stat", "--version")


def test_option_values():
    bad(USAGE, ["--force", "takes no value"], "pool", "format", "p", "d", "--force=1")
    bad(USAGE, ["--output", "needs a value"], "pool", "list", "--output")
    bad(USAGE, ["-o", "needs a value"], "pool", "list", "-o")
    bad(USAGE, ["--output", "'xml'", "not text or json"], "pool", "list", "--output", "xml")
    bad(USAGE, ["--transport", "'x'", "not tcp"], "connect", "--transport", "x", "-n", "n")
    bad(USAGE, ["--traddr", "empty"], "connect", "-t", "tcp", "-n", "n", "--traddr=")
    bad(USAGE, ["--nqn", "223"], "disconnect", "--nqn", "n" * 224)
    bad(USAGE, ["--nqn", "223"], "disconnect", "--nqn=")


def test_ways_to_say_an_option():
    want = good("pool", "list", "-o", "json").out
    for words in (["-ojson", "pool", "list"], ["pool", "--output=json", "list"], ["pool", "list", "--output", "json"],
                  ["--output", "json", "pool", "list"], ["-o", "text", "pool", "list", "-o", "json"]):
        assert good(*words).out == want, words


def test_letters_together():
    want = good("pool", "list", "-o", "json").out
    assert good("pool", "list", "-ojson").out == want
    assert good("pool", "format", "-fh").out == good("pool", "format", "--help").out
    a = tool.image("a", 9 << 20)
    assert good("pool", "format", "p", a, "--segment-size", "1M", "-fo", "json").json()["pool"]["name"] == "p"
    assert good("pool", "format", "p", a, "--segment-size", "1M", "-fojson").json()["pool"]["name"] == "p"
    bad(USAGE, ["-z", "no such option"], "pool", "format", "p", a, "-fz")
    bad(USAGE, ["-o", "needs a value"], "pool", "format", "p", a, "-fo")


def test_abbreviations():
    a = tool.image("a", 9 << 20)
    assert good("pool", "format", "p", a, "--seg", "1M", "--out=json", "--fo").json()["pool"]["segment_size"] == 1 << 20
    assert good("--out", "json", "pool", "list").json()
    assert "  mode=432" in good("tenant", "add", "p", "t", "--mo", "660").log           # --move is of another command
    bad(USAGE, ["--max", "ambiguous", "--max-pinned, --max-leased, --max-keyspaces, --max-inflight"],
        "tenant", "set", "p", "t", "--max", "1")
    # before the command all of them count
    bad(USAGE, ["--mo", "ambiguous", "--move", "--mode"], "--mo", "660", "tenant", "add", "p", "t")
    bad(USAGE, ["--", "no such option"], "pool", "list", "--=x")
    bad(USAGE, ["--max", "no such option"], "pool", "list", "--max", "1")


def test_help_as_a_command():
    assert good("help").out == good("--help").out
    assert good("help", "pool").out == good("pool", "--help").out
    assert good("help", "pool", "attach").out == good("pool", "attach", "--help").out
    assert good("help", "stat").out == good("stat", "--help").out
    bad(USAGE, ["frob", "no such command"], "help", "frob")
    bad(USAGE, ["pool", "'frob': no such verb"], "help", "pool", "frob")


def test_force_means_what_the_command_says():
    said = {name: re.search(r"^  -f, --force +(.*)", good(*name.split(), "--help").out, re.M) for name in COMMANDS}
    said = {name: m[1] for name, m in said.items() if m}
    assert set(said) == {"pool format", "pool destroy", "pool add", "check", "dump"}, said
    assert "format" not in said["check"] + said["dump"] + said["pool destroy"] and "in use" in said["check"], said


def test_double_dash_ends_options():
    assert good("pool", "attach", "--", "-odd/x").log[1].endswith("/-odd/x")


def test_names():
    for name in ("a", "A-b_c.9", "0", "_", "x" * 31):
        good("tenant", "add", name, name)
    for name in ("", ".x", "x" * 32, "a b", "a/b", "ä", "a:b", ".."):
        bad(USAGE, "a name has 1 to 31", "tenant", "add", "ctx0", name)
        bad(USAGE, "a name has 1 to 31", "pool", "show", name)
    bad(USAGE, "a name has 1 to 31", "pool", "show", "--", "-x")


def test_sizes():
    for size in ("", "x", "1.5M", "-1", "1KB", "1Ki", "1 M", "M", "0x10", "+4"):
        bad(USAGE, ["--segment-size", "not a size"], "pool", "format", "p", "d", f"--segment-size={size}")
    for size in ("99999999999999999999", "18446744073709551616", "16777216T", "20000000000G"):
        bad(USAGE, ["--segment-size", "too large"], "pool", "format", "p", "d", "--segment-size", size)
    for size in ("4k", "4KiB", "2g", "1T"):
        bad(USAGE, ["--segment-size", "between 256K and 1G"], "pool", "format", "p", "d", "--segment-size", size)


def test_numbers():
    for n in ("", "x", "-1", "1.5", "1e3"):
        bad(USAGE, ["--count", "not a number"], "stat", "--watch", f"--count={n}")
    bad(USAGE, ["--count", "too large"], "stat", "--watch", "--count=2147483648")
    bad(USAGE, ["--count", "too large"], "stat", "--watch", "--count=99999999999999999999")
    bad(USAGE, "needs --watch", "stat", "--count", "1")


def test_seconds():
    for n in ("x", "-1", "1.", ".5", "1e3", "", "1.5.5"):
        bad(USAGE, ["--watch", "not a number of seconds"], "stat", f"--watch={n}")
    for n in ("0", "0.01", "86401"):
        bad(USAGE, ["--watch", "not between"], "stat", f"--watch={n}")


def test_modes():
    for mode in ("", "8", "u+x", "00660", "0x1", "-1"):
        bad(USAGE, ["--mode", "octal"], "tenant", "add", "p", "t", f"--mode={mode}")
    for mode in ("1777", "4600"):
        bad(USAGE, ["--mode", "only permission bits"], "tenant", "add", "p", "t", "--mode", mode)
    assert "  mode=432" in good("tenant", "add", "p", "t", "--mode", "660").log


def test_users():
    bad(USAGE, ["--uid", "no such user"], "tenant", "add", "p", "t", "--uid", "nobody-of-that-name")
    bad(USAGE, ["--gid", "no such group"], "tenant", "add", "p", "t", "--gid", "nobody-of-that-name")
    bad(USAGE, ["--uid", "too large"], "tenant", "add", "p", "t", "--uid", "4294967295")
    assert "  uid=4294967294" in good("tenant", "add", "p", "t", "--uid", "4294967294").log


def test_the_program_that_is_installed():
    """Not the one with fakes: help, usage and version work without anything"""
    assert real("--help").status == 0
    assert real("pool").status == USAGE
    assert "kvctxctl 0." in real("version").out


COMPLETE = r"""
source "$1"
ls() { case $1 in /dev/kvctx) printf '%s\n' ctx0 ctx1 ;; /dev/kvctx/ctx0) printf '%s\n' default llama ;; esac; }
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_kvctxctl
[ ${#COMPREPLY[@]} = 0 ] || printf '%s\n' "${COMPREPLY[@]}"
"""


def complete(*words):
    script = os.path.join(tool.OUT, "share/bash-completion/completions/kvctxctl")
    done = subprocess.run(["bash", "-u", "-c", COMPLETE.replace("_kvctxctl\n", "set +u; _kvctxctl\n", 1), "bash", script,
                           "kvctxctl", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tool.DIR)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout.split()


def test_completion_syntax():
    script = os.path.join(tool.OUT, "share/bash-completion/completions/kvctxctl")
    done = subprocess.run(["bash", "-n", script], stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr
    done = subprocess.run(["shellcheck", "-s", "bash", script], stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stdout


def test_completion_of_commands():
    assert complete("") == ["pool", "tenant", "connect", "disconnect", "status", "doctor", "stat", "top", "events", "exporter", "check",
                            "dump", "probe", "load", "unload", "version", "help"]
    assert complete("help", "t") == ["tenant", "top"]
    assert complete("c") == ["connect", "check"]
    assert complete("pool", "") == ["format", "scan", "attach", "detach", "destroy", "add", "rejoin", "remove", "list", "show",
                                    "set"]
    assert complete("-o", "json", "tenant", "r") == ["remove"]
    assert complete("--output", "=", "json", "tenant", "r") == ["remove"]
    assert complete("--v") == ["--version"]


def test_completion_of_options():
    assert complete("pool", "format", "--") == ["--output", "--help", "--segment-size", "--chunk-size", "--size",
                                              "--force", "--dry-run"]
    assert complete("connect", "--tr") == ["--transport", "--traddr", "--trsvcid"]
    assert complete("stat", "--w") == ["--watch"]


def test_completion_of_values():
    assert complete("connect", "--transport", "") == ["tcp", "rdma", "loop", "fc"]
    assert complete("connect", "-t", "r") == ["rdma"]
    assert complete("pool", "list", "-o", "j") == ["json"]
    assert complete("pool", "list", "--output", "=") == ["text", "json"]
    assert complete("pool", "list", "--output", "=", "t") == ["text"]
    assert complete("tenant", "add", "ctx0", "x", "--uid", "roo") == ["root"]
    assert complete("connect", "--nqn", "") == []


def test_completion_of_arguments():
    tool.image("disk1", 0)
    tool.image("disk2", 0)
    assert complete("pool", "show", "") == ["ctx0", "ctx1"]
    assert complete("pool", "show", "ctx0", "") == []
    assert complete("stat", "--watch", "ctx1") == ["ctx1"]
    assert complete("tenant", "remove", "ctx0", "") == ["default", "llama"]
    assert complete("tenant", "set", "ctx0", "llama", "--max-") == [
        "--max-pinned", "--max-leased", "--max-keyspaces", "--max-inflight"]
    assert complete("tenant", "add", "ctx0", "") == []
    assert complete("pool", "format", "") == []
    assert sorted(complete("pool", "format", "p", "di")) == ["disk1", "disk2"]
    assert sorted(complete("pool", "format", "p", "disk1", "--force", "di")) == ["disk1", "disk2"]
    assert sorted(complete("pool", "attach", "disk1", "di")) == ["disk1", "disk2"]


# What zsh's completion was asked to offer: its functions are replaced by ones that print it
ZSH = r"""
compdef() { :; }
compadd() { local -i n=$@[(I)--]; print -rl -- "${@[n+1,-1]}" }
_describe() { print -rl -- "${(@)${(P)2}%%:*}" }
_arguments() { print -r -- "arguments $words[2,-1]"; print -rl -- "$@" }
_files() { :; }
words=("${@[2,-1]}")
CURRENT=$(($# - 1))
source $1
"""


def zsh(*words):
    script = os.path.join(tool.OUT, "share/zsh/_kvctxctl")
    done = subprocess.run(["zsh", "-f", "-c", ZSH, "zsh", script, "kvctxctl", *words], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, cwd=tool.DIR)
    assert not done.stderr, done.stderr
    return done.stdout.splitlines()


def test_completion_of_zsh():
    if not shutil.which("zsh"):
        raise tool.Skip("no zsh")
    assert zsh("") == complete("")
    assert zsh("pool", "") == complete("pool", "")
    assert zsh("-o", "json", "tenant", "") == complete("tenant", "")
    said = zsh("--output", "json", "pool", "format", "p", "")
    assert said[0] == "arguments p " and "*:DEVICE:_files" in said and "1:NAME: " in said, said
    assert "(-f --force)-f[format what holds something; tells what that was]" in said, said
    assert "--segment-size=[unit of space, 256K to 1G (default 256M)]:SIZE: " in said, said
    assert any(s.startswith("(-o --output)--output=[") and s.endswith(":FORMAT:(text json)") for s in said), said
    said = zsh("tenant", "show", "ctx0", "")
    assert "1:POOL:_kvctxctl_pool" in said and "2:TENANT:_kvctxctl_tenant" in said, said
    assert any(s.startswith("--watch=[") and "::" in s for s in zsh("stat", ""))


def fish(line):
    """Offers for this line, with tenants below the test's folder instead of /dev"""
    script = os.path.join(tool.DIR, "kvctxctl.fish")
    with open(os.path.join(tool.OUT, "share/fish/vendor_completions.d/kvctxctl.fish")) as made, open(script, "w") as f:
        f.write(made.read().replace("/dev/kvctx", tool.DIR + "/nodes"))
    done = subprocess.run(["fish", "--no-config", "-c", f"source {script}; complete -C \"$argv\"", line],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tool.DIR,
                          env=dict(os.environ, HOME=tool.DIR, TERM="dumb"))
    assert done.returncode == 0 and not done.stderr, done.stderr
    return [offer.split("\t")[0] for offer in done.stdout.splitlines()]


def test_completion_of_fish():
    if not shutil.which("fish"):
        raise tool.Skip("no fish")
    tool.image("disk1", 0)
    assert sorted(fish("kvctxctl ")) == sorted(complete(""))
    assert sorted(fish("kvctxctl pool ")) == sorted(complete("pool", ""))
    assert sorted(fish("kvctxctl -o json tenant ")) == sorted(complete("tenant", ""))
    assert sorted(fish("kvctxctl pool format --")) == sorted(complete("pool", "format", "--"))
    assert fish("kvctxctl connect --transport ") == ["fc", "loop", "rdma", "tcp"]
    assert fish("kvctxctl connect -t r") == ["rdma"]
    assert fish("kvctxctl pool format p di") == ["disk1"] == fish("kvctxctl pool format p disk1 di")
    assert fish("kvctxctl pool format di") == [] == fish("kvctxctl load ")
    assert fish("kvctxctl tenant add ctx0 x --uid roo") == ["root"]
    assert fish("kvctxctl pool show ") == []
    for node in ("ctx0/default", "ctx0/llama", "ctx1/default"):
        os.makedirs(os.path.join(tool.DIR, "nodes", node))
    assert fish("kvctxctl pool show ") == ["ctx0", "ctx1"] and fish("kvctxctl tenant show ctx0 ") == ["default", "llama"]


def test_man_page_tells_everything():
    text = open(os.path.join(tool.OUT, "share/man/man8/kvctxctl.8")).read().replace("\\-", "-")
    assert "@" not in re.sub(r"^\.\\\".*$", "", text, flags=re.M)
    for name in COMMANDS:
        assert f"\n.SS kvctxctl {name}" in text, name
    for name in set(re.findall(r"--[a-z-]+", "".join(good(*c.split(), "--help").out for c in COMMANDS))):
        assert name in text, name
    for key in good("stat", "ctx0", "-o", "json").json()["stats"][0]:
        assert re.search(rf"\b{key}\b", text), key
    part = re.search(r'(?s)\n\.BR "pool format" .*?\.TP', text)[0]
    for key in good("pool", "show", "ctx0", "-o", "json").json()["pool"]:
        assert re.search(rf"\b{key}\b", part), key
    part = re.search(r'(?s)\n\.B tenant list.*?\.TP', text)[0]
    for key in good("tenant", "list", "-o", "json").json()["tenants"][0]:
        assert re.search(rf"\b{key}\b", part), key
    part = re.search(r'(?s)\n\.BR "tenant add" .*?\.TP', text)[0]
    for key in good("tenant", "set", "ctx0", "t", "--allow-unverified", "-o", "json").json():
        assert key == "format" or f"\n.I {key}\n" in part or f"\n.IR {key} " in part, key


def test_man_page_tells_what_scan_and_destroy_say():
    text = open(os.path.join(tool.OUT, "share/man/man8/kvctxctl.8")).read()
    a = tool.image("a", 9 << 20)
    good("pool", "format", "p", a, "--segment-size", "1M")
    scanned = good("pool", "scan", a, "-o", "json").json()
    destroyed = good("pool", "destroy", a, "--force", "-o", "json").json()
    for name, root in (("scan", scanned), ("destroy", destroyed)):
        part = re.search(rf"(?s)\n\.B pool {name}\n.*?\.TP", text.split(".SH JSON")[1])[0]
        for key in keys(root) - {"format"}:
            assert re.search(rf"\b{key}\b", part), (name, key)


def keys(value):
    if isinstance(value, list):
        return set().union(*map(keys, value))
    if isinstance(value, dict):
        return set(value) | set().union(*map(keys, value.values()))
    return set()


def test_man_page_is_well_formed():
    if not shutil.which("groff"):
        raise tool.Skip("no groff")
    page = os.path.join(tool.OUT, "share/man/man8/kvctxctl.8")
    done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z", page], stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr
