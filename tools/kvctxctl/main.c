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

/*
 * The option that @text (without its dashes) names; @len bytes of it are the name. Options may share a letter: it is that
 * of the option that @cmd takes. With each of them goes a value, or with none, so words are told from values before.
 */
static int find_option(const struct ctl_command *cmd, const char *text, size_t len, bool letter)
{
	int found = -1;

	for (int i = 0; i < OPT_NR; i++) {
		const struct ctl_option *o = &ctl_options[i];

		if (!letter && strlen(o->name) == len && !memcmp(o->name, text, len))
			return i;
		if (!letter || !o->letter || o->letter != *text)
			continue;
		if (found < 0 || (cmd && cmd->options >> i & 1))
			found = i;
	}
	return found;
}

static bool is_number(const char *text)
{
	return text && *text && !text[strspn(text, "0123456789.")];
}

/* One option at argv[*i], its value possibly in the word after it, which is taken then. @shown: as it was written */
static int take_option(const struct ctl_command *cmd, char **argv, int *i, const char **value, char *shown, size_t size)
{
	bool is_long = argv[*i][1] == '-';
	const char *text = argv[*i] + 1 + is_long;
	size_t len = is_long ? strcspn(text, "=") : 1;
	int id = find_option(cmd, text, len, !is_long);

	snprintf(shown, size, "%.*s", (int)(len + 1 + is_long), argv[*i]);
	*value = text[len] ? text + len + is_long : NULL;
	if (id < 0 || ctl_options[id].kind == KIND_FLAG || *value)
		return id;
	if (argv[*i + 1] && (!ctl_options[id].value_optional || is_number(argv[*i + 1])))
		*value = argv[++*i];
	return id;
}

static int parse_option(struct ctl *c, char **argv, int *i)
{
	const char *value, *why;
	char shown[64];
	int id = take_option(c->cmd, argv, i, &value, shown, sizeof(shown));
	const struct ctl_option *o = &ctl_options[id < 0 ? 0 : id];

	if (id < 0)
		return usage(NULL, shown, "no such option");
	c->opt[id].set = true;
	if (o->kind == KIND_FLAG)
		return value ? usage(NULL, shown, "takes no value") : CTL_OK;
	if (!value)
		return o->value_optional ? CTL_OK : usage(NULL, shown, "needs a value (%s)", o->meta);
	why = ctl_value_parse(o->kind, value, &c->opt[id]);
	return why ? usage(NULL, shown, "'%.40s': %s", value, why) : CTL_OK;
}

static bool is_word(const char *arg)
{
	return arg[0] != '-' || !arg[1];
}

static void collect_words(struct words *w, char **argv)
{
	bool only_words = false;
	const char *value;
	char shown[64];

	for (int i = 1; argv[i]; i++) {
		if (only_words || is_word(argv[i]))
			w->word[w->nr++] = argv[i];
		else if (!strcmp(argv[i], "--"))
			only_words = true;
		else
			take_option(NULL, argv, &i, &value, shown, sizeof(shown));
	}
}

static int collect_options(struct ctl *c, char **argv)
{
	int status = CTL_OK;

	for (int i = 1; argv[i] && strcmp(argv[i], "--") && !status; i++)
		if (!is_word(argv[i]))
			status = parse_option(c, argv, &i);
	c->json = c->opt[OPT_OUTPUT].text && !strcmp(c->opt[OPT_OUTPUT].text, "json");
	return status;
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

static int parse(struct ctl *c, struct words *w, char **argv)
{
	collect_words(w, argv);
	c->cmd = w->nr ? find_command(w) : NULL;
	return collect_options(c, argv) ?: dispatch(c, w);
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
		status = parse(&c, &w, argv);
	free(w.word);
	if (fflush(stdout) || ferror(stdout)) {
		ctl_error("output", "%s", strerror(errno));
		return status ?: CTL_FAILED;
	}
	return status;
}
