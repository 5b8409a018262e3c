// SPDX-License-Identifier: GPL-2.0
/*
 * kvctxctl: the operator's tool of kvctx. This file parses the command line against the table and dispatches.
 *
 * Words that do not begin with '-' name the command, then its arguments; options may stand anywhere. The parser
 * first collects the words, then finds the command, then collects the options, then checks that all fits it.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "ctl.h"

struct words {
	int nr;
	char **word;		/* those that are not options */
};

static int vusage(const char *command, const char *what, const char *fmt, va_list ap)
{
	char why[256];

	vsnprintf(why, sizeof(why), fmt, ap);
	ctl_error(what, "%s", why);
	fprintf(stderr, "Try 'kvctxctl%s%s --help'.\n", *command ? " " : "", command);
	return CTL_USAGE;
}

static __printf(3, 4) int usage_of(const char *command, const char *what, const char *fmt, ...)
{
	va_list ap;
	int status;

	va_start(ap, fmt);
	status = vusage(command, what, fmt, ap);
	va_end(ap);
	return status;
}

static __printf(3, 4) int usage(const struct ctl_command *cmd, const char *what, const char *fmt, ...)
{
	char name[64] = "";
	va_list ap;
	int status;

	if (cmd)
		ctl_command_name(cmd, name, sizeof(name));
	va_start(ap, fmt);
	status = vusage(name, what, fmt, ap);
	va_end(ap);
	return status;
}

/* One option as it was written; its value, where it has one */
struct taken {
	int id;			/* OPT_*, NO_OPTION or AMBIGUOUS */
	char shown[64];
	const char *value;
};

#define NO_OPTION	-1
#define AMBIGUOUS	-2

static bool takes(const struct ctl_command *cmd, int id)
{
	return cmd && (cmd->options | OPTS_COMMON) >> id & 1;
}

/*
 * Options may share a letter: it is that of the option that @cmd takes. With each of them goes a value, or with none, so
 * words are told from values before the command is known.
 */
static int find_letter(const struct ctl_command *cmd, char letter)
{
	int found = NO_OPTION;

	for (int i = 0; i < OPT_NR; i++)
		if (ctl_options[i].letter == letter && (found < 0 || takes(cmd, i)))
			found = i;
	return found;
}

/* By its name, or by so much of it as no other has: of those that @cmd takes, or of all */
static int find_name(const struct ctl_command *cmd, const char *text, size_t len)
{
	int any = NO_OPTION, ours = NO_OPTION;

	for (int i = 0; i < OPT_NR && len; i++) {
		if (strncmp(ctl_options[i].name, text, len))
			continue;
		if (!ctl_options[i].name[len])
			return i;
		any = any == NO_OPTION ? i : AMBIGUOUS;
		if (takes(cmd, i))
			ours = ours == NO_OPTION ? i : AMBIGUOUS;
	}
	if (ours != NO_OPTION)
		return ours;
	/* of those of others, one that is meant can be told */
	return cmd && any == AMBIGUOUS ? NO_OPTION : any;
}

static bool is_number(const char *text)
{
	return text && *text && !text[strspn(text, "0123456789.")];
}

/*
 * The option at argv[*i], or at *@letters, which is in it; a value in the word after it is taken too. *@letters is then the
 * next one behind the same dash, or NULL.
 */
static void take_option(const struct ctl_command *cmd, char **argv, int *i, const char **letters, struct taken *t)
{
	bool is_long = !*letters && argv[*i][1] == '-';
	const char *text = *letters ?: argv[*i] + 1 + is_long;
	size_t len = is_long ? strcspn(text, "=") : 1;

	t->id = is_long ? find_name(cmd, text, len) : find_letter(cmd, *text);
	t->value = text[len] ? text + len + is_long : NULL;
	snprintf(t->shown, sizeof(t->shown), "-%s%.*s", is_long ? "-" : "", (int)len, text);
	*letters = NULL;
	if (t->id < 0)
		return;
	if (ctl_options[t->id].kind == KIND_FLAG && !is_long) {
		*letters = t->value;
		t->value = NULL;
	} else if (ctl_options[t->id].kind != KIND_FLAG && !t->value && argv[*i + 1] &&
		   (!ctl_options[t->id].value_optional || is_number(argv[*i + 1]))) {
		t->value = argv[++*i];
	}
}

/* What begins so */
static int ambiguous(const struct ctl_command *cmd, const struct taken *t)
{
	char names[192] = "";

	for (int i = 0; i < OPT_NR; i++) {
		size_t used = strlen(names);

		if (!strncmp(ctl_options[i].name, t->shown + 2, strlen(t->shown + 2)) && (!cmd || takes(cmd, i)))
			snprintf(names + used, sizeof(names) - used, "%s--%s", used ? ", " : "", ctl_options[i].name);
	}
	return usage(cmd, t->shown, "ambiguous: %s", names);
}

static int parse_option(struct ctl *c, const struct taken *t)
{
	const struct ctl_option *o = &ctl_options[t->id < 0 ? 0 : t->id];
	const char *why;

	if (t->id == AMBIGUOUS)
		return ambiguous(c->cmd, t);
	if (t->id < 0)
		return usage(c->cmd, t->shown, "no such option");
	c->opt[t->id].set = true;
	if (o->kind == KIND_FLAG)
		return t->value ? usage(c->cmd, t->shown, "takes no value") : CTL_OK;
	if (!t->value)
		return o->value_optional ? CTL_OK : usage(c->cmd, t->shown, "needs a value (%s)", o->meta);
	why = ctl_value_parse(o->kind, t->value, &c->opt[t->id]);
	return why ? usage(c->cmd, t->shown, "'%.40s': %s", t->value, why) : CTL_OK;
}

static bool is_word(const char *arg)
{
	return arg[0] != '-' || !arg[1];
}

static const struct ctl_noun *find_noun(const char *word)
{
	for (const struct ctl_noun *n = ctl_nouns; n->name; n++)
		if (!strcmp(n->name, word))
			return n;
	return NULL;
}

static const struct ctl_command *find_command(const struct words *w)
{
	for (const struct ctl_command *cmd = ctl_commands; w->nr && cmd->noun; cmd++) {
		if (strcmp(cmd->noun, w->word[0]))
			continue;
		if (!cmd->verb || (w->nr > 1 && !strcmp(cmd->verb, w->word[1])))
			return cmd;
	}
	return NULL;
}

/* An abbreviation that stands before the command has to be one among all options: else nobody knows where its words are. */
static int collect_words(struct words *w, char **argv)
{
	bool only_words = false;
	struct taken t;

	for (int i = 1; argv[i]; i++) {
		const char *letters = NULL;

		if (!only_words && !strcmp(argv[i], "--")) {
			only_words = true;
		} else if (only_words || is_word(argv[i])) {
			w->word[w->nr++] = argv[i];
		} else {
			do {
				take_option(find_command(w), argv, &i, &letters, &t);
			} while (letters);
			if (t.id == AMBIGUOUS && !find_command(w))
				return ambiguous(NULL, &t);
		}
	}
	return CTL_OK;
}

static int collect_options(struct ctl *c, char **argv)
{
	int status = CTL_OK;
	struct taken t;

	for (int i = 1; argv[i] && strcmp(argv[i], "--") && !status; i++) {
		const char *letters = NULL;

		if (is_word(argv[i]))
			continue;
		do {
			take_option(c->cmd, argv, &i, &letters, &t);
			status = parse_option(c, &t);
		} while (letters && !status);
	}
	c->json = c->opt[OPT_OUTPUT].text && !strcmp(c->opt[OPT_OUTPUT].text, "json");
	return status;
}

/* No row of the table fits: help or what is wrong */
static int no_command(bool help, const struct words *w)
{
	const struct ctl_noun *noun = w->nr ? find_noun(w->word[0]) : NULL;

	if (!w->nr && help)
		ctl_help(stdout);
	else if (noun && w->nr == 1 && help)
		ctl_help_noun(stdout, noun);
	else if (!w->nr)
		return usage(NULL, "command", "none given");
	else if (!noun)
		return usage(NULL, w->word[0], "no such command");
	else if (w->nr == 1)
		return usage_of(noun->name, w->word[0], "needs a verb");
	else
		return usage_of(noun->name, w->word[0], "'%s': no such verb", w->word[1]);
	return CTL_OK;
}

int cmd_help(struct ctl *c)
{
	const struct words w = { c->nr_args, c->args };
	const struct ctl_command *cmd = find_command(&w);

	if (!cmd)
		return no_command(true, &w);
	ctl_help_command(stdout, cmd);
	return CTL_OK;
}

static int check_args(const struct ctl *c)
{
	const struct ctl_arg *a = c->cmd->args;
	struct ctl_value v;
	const char *why;
	int i;

	for (i = 0; i < c->nr_args && a->kind; i++) {
		why = ctl_value_parse(a->kind, c->args[i], &v);
		if (why)
			return usage(c->cmd, c->args[i], "%s", why);
		a += !a->many;
	}
	if (i < c->nr_args)
		return usage(c->cmd, c->args[i], "one argument too many");
	if (a->kind && !a->optional && !(a->many && i > a - c->cmd->args))
		return usage(c->cmd, a->meta, "missing");
	return CTL_OK;
}

static int check_options(const struct ctl *c)
{
	char what[64];

	for (int i = 0; i < OPT_NR; i++) {
		bool needed = c->cmd->required & 1ULL << i;

		if (c->opt[i].set == needed && !needed)
			continue;
		snprintf(what, sizeof(what), "--%s", ctl_options[i].name);
		if (needed && !c->opt[i].set)
			return usage(c->cmd, what, "missing");
		if (!((c->cmd->options | OPTS_COMMON) & 1ULL << i))
			return usage(c->cmd, what, "not an option of this command");
	}
	return CTL_OK;
}

static int dispatch(struct ctl *c, struct words *w)
{
	const struct words version = { 1, (char *[]){ "version" } };
	int status;

	if (!w->nr && c->opt[OPT_VERSION].set && !c->opt[OPT_HELP].set) {
		c->opt[OPT_VERSION].set = false;
		c->cmd = find_command(&version);
		return check_options(c) ?: c->cmd->run(c);
	}
	if (!c->cmd)
		return no_command(c->opt[OPT_HELP].set, w);
	if (c->opt[OPT_HELP].set) {
		ctl_help_command(stdout, c->cmd);
		return CTL_OK;
	}
	c->args = w->word + 1 + !!c->cmd->verb;
	c->nr_args = w->nr - 1 - !!c->cmd->verb;
	status = check_options(c) ?: check_args(c);
	return status ?: c->cmd->run(c);
}

static int parse(struct ctl *c, struct words *w, char **argv)
{
	int status = collect_words(w, argv);

	c->cmd = find_command(w);
	return status ?: collect_options(c, argv) ?: dispatch(c, w);
}

/* For the build only: completion and man page from the table */
static int generate(const char *what)
{
	if (!strcmp(what, "man"))
		ctl_generate_man(stdout);
	else if (!ctl_generate_completion(stdout, what))
		return usage(NULL, what, "cannot be generated");
	return CTL_OK;
}

int main(int argc, char **argv)
{
	struct ctl c = { 0 };
	struct words w = { 0 };
	int status;

	w.word = calloc((size_t)argc + 1, sizeof(*w.word));
	if (!w.word) {
		ctl_error("arguments", "%s", strerror(ENOMEM));
		return CTL_FAILED;
	}
	if (argc == 3 && !strcmp(argv[1], "--generate"))
		status = generate(argv[2]);
	else
		status = parse(&c, &w, argv);
	free(w.word);
	if (fflush(stdout) || ferror(stdout)) {
		ctl_error("output", "%s", strerror(errno));
		return status ?: CTL_FAILED;
	}
	return status;
}
