// SPDX-License-Identifier: GPL-2.0
/*
 * kvctxctl: the operator's tool of kvctx. This file parses the command line against the table and dispatches.
 *
 * Words that do not begin with '-' name the command, then its arguments; options may stand anywhere. The parser
 * first collects both, then finds the command, then checks that what was collected fits it.
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

static __printf(3, 4) int usage(const struct ctl_command *cmd, const char *what, const char *fmt, ...)
{
	char name[64] = "", why[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	ctl_error(what, "%s", why);
	if (cmd)
		ctl_command_name(cmd, name, sizeof(name));
	fprintf(stderr, "Try 'kvctxctl%s%s --help'.\n", *name ? " " : "", name);
	return CTL_USAGE;
}

/* The option that @text (without its dashes) names; @len bytes of it are the name */
static int find_option(const char *text, size_t len, bool letter)
{
	for (int i = 0; i < OPT_NR; i++) {
		const struct ctl_option *o = &ctl_options[i];

		if (letter ? o->letter && o->letter == *text :
			     strlen(o->name) == len && !memcmp(o->name, text, len))
			return i;
	}
	return -1;
}

static bool is_number(const char *text)
{
	return text && *text && !text[strspn(text, "0123456789.")];
}

/* One option at argv[*i], its value possibly in the word after it */
static int parse_option(struct ctl *c, char **argv, int *i)
{
	bool is_long = argv[*i][1] == '-';
	const char *text = argv[*i] + 1 + is_long, *value = NULL, *why;
	size_t len = is_long ? strcspn(text, "=") : 1;
	int id = find_option(text, len, !is_long);
	const struct ctl_option *o = &ctl_options[id < 0 ? 0 : id];
	char shown[64];

	snprintf(shown, sizeof(shown), "%.*s", (int)(len + 1 + is_long), argv[*i]);
	if (id < 0)
		return usage(NULL, shown, "no such option");
	if (text[len])
		value = text + len + is_long;
	c->opt[id].set = true;
	if (o->kind == KIND_FLAG)
		return value ? usage(NULL, shown, "takes no value") : CTL_OK;
	if (!value && (!o->value_optional || is_number(argv[*i + 1])))
		value = argv[*i + 1] ? argv[++*i] : NULL;
	if (!value)
		return o->value_optional ? CTL_OK : usage(NULL, shown, "needs a value (%s)", o->meta);
	why = ctl_value_parse(o->kind, value, &c->opt[id]);
	return why ? usage(NULL, shown, "'%.40s': %s", value, why) : CTL_OK;
}

static int collect(struct ctl *c, struct words *w, char **argv)
{
	bool only_words = false;

	for (int i = 1; argv[i]; i++) {
		int status = CTL_OK;

		if (only_words || argv[i][0] != '-' || !argv[i][1])
			w->word[w->nr++] = argv[i];
		else if (!strcmp(argv[i], "--"))
			only_words = true;
		else
			status = parse_option(c, argv, &i);
		if (status)
			return status;
	}
	c->json = c->opt[OPT_OUTPUT].text && !strcmp(c->opt[OPT_OUTPUT].text, "json");
	return CTL_OK;
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
	for (const struct ctl_command *cmd = ctl_commands; cmd->noun; cmd++) {
		if (strcmp(cmd->noun, w->word[0]))
			continue;
		if (!cmd->verb || (w->nr > 1 && !strcmp(cmd->verb, w->word[1])))
			return cmd;
	}
	return NULL;
}

/* No row of the table fits: help or what is wrong */
static int no_command(const struct ctl *c, const struct words *w)
{
	const struct ctl_noun *noun = w->nr ? find_noun(w->word[0]) : NULL;
	bool help = c->opt[OPT_HELP].set;

	if (!w->nr && help)
		ctl_help(stdout);
	else if (noun && w->nr == 1 && help)
		ctl_help_noun(stdout, noun);
	else if (!w->nr)
		return usage(NULL, "command", "none given");
	else if (!noun)
		return usage(NULL, w->word[0], "no such command");
	else if (w->nr == 1)
		return usage(NULL, w->word[0], "needs a verb");
	else
		return usage(NULL, w->word[0], "'%s': no such verb", w->word[1]);
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
	c->cmd = w->nr ? find_command(w) : NULL;
	if (!c->cmd)
		return no_command(c, w);
	if (c->opt[OPT_HELP].set) {
		ctl_help_command(stdout, c->cmd);
		return CTL_OK;
	}
	c->args = w->word + 1 + !!c->cmd->verb;
	c->nr_args = w->nr - 1 - !!c->cmd->verb;
	status = check_options(c) ?: check_args(c);
	return status ?: c->cmd->run(c);
}

/* For the build only: completion and man page from the table */
static int generate(const char *what)
{
	if (!strcmp(what, "completion"))
		ctl_generate_completion(stdout);
	else if (!strcmp(what, "man"))
		ctl_generate_man(stdout);
	else
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
		status = collect(&c, &w, argv) ?: dispatch(&c, &w);
	free(w.word);
	if (fflush(stdout) || ferror(stdout)) {
		ctl_error("output", "%s", strerror(errno));
		return status ?: CTL_FAILED;
	}
	return status;
}
