// SPDX-License-Identifier: GPL-2.0
/*
 * What the table says, as --help and as the man page's part on commands.
 */
#include <ctype.h>
#include <string.h>

#include "ctl.h"

static const char statuses[] =
"Exit status: 0 done, 1 failed, 2 wrong usage, 3 no such device, pool or module,\n"
"or no permission, 4 not supported here.\n";

static void put_synopsis(FILE *to, const struct ctl_command *cmd)
{
	char name[64];

	ctl_command_name(cmd, name, sizeof(name));
	fprintf(to, "kvctxctl %s", name);
	for (int i = 0; i < OPT_NR; i++)
		if (cmd->required & 1ULL << i)
			fprintf(to, " --%s %s", ctl_options[i].name, ctl_options[i].meta);
	fputs(" [OPTION]...", to);
	for (const struct ctl_arg *a = cmd->args; a->kind; a++)
		fprintf(to, a->optional ? " [%s%s]" : " %s%s", a->meta, a->many ? "..." : "");
}

/* "-o, --output FORMAT" */
static void option_text(const struct ctl_option *o, char *buf, size_t size)
{
	char letter[8] = "    ", value[32] = "";

	if (o->letter)
		snprintf(letter, sizeof(letter), "-%c, ", o->letter);
	if (o->meta)
		snprintf(value, sizeof(value), o->value_optional ? " [%s]" : " %s", o->meta);
	snprintf(buf, size, "%s--%s%s", letter, o->name, value);
}

static void put_row(FILE *to, const char *left, const char *right)
{
	fprintf(to, "  %-30s %s\n", left, right);
}

/* What --force takes a command's word for is the command's own affair */
const char *ctl_option_help(const struct ctl_command *cmd, int id)
{
	return id == OPT_FORCE && cmd ? cmd->force : ctl_options[id].help;
}

static void put_options(FILE *to, const struct ctl_command *cmd, uint64_t set)
{
	char left[80];

	for (int i = 0; i < OPT_NR; i++) {
		if (!(set & 1ULL << i))
			continue;
		option_text(&ctl_options[i], left, sizeof(left));
		put_row(to, left, ctl_option_help(cmd, i));
	}
}

static void put_commands(FILE *to, const char *noun)
{
	char name[64];

	for (const struct ctl_command *cmd = ctl_commands; cmd->noun; cmd++) {
		if (noun && strcmp(cmd->noun, noun))
			continue;
		ctl_command_name(cmd, name, sizeof(name));
		put_row(to, name, cmd->summary);
	}
}

void ctl_help(FILE *to)
{
	fputs("Usage: kvctxctl COMMAND [OPTION]... [ARGUMENT]...\n"
	      "Manage kvctx, the KV cache on NVMe and NVMe-oF namespaces.\n\nCommands:\n", to);
	put_commands(to, NULL);
	fputs("\nOptions:\n", to);
	put_options(to, NULL, OPTS_COMMON | OPT(VERSION));
	fputs("\n'kvctxctl help COMMAND' explains a command.\n", to);
	fputs(statuses, to);
}

void ctl_help_noun(FILE *to, const struct ctl_noun *noun)
{
	fprintf(to, "Usage: kvctxctl %s VERB [OPTION]... [ARGUMENT]...\n%c%s.\n\nCommands:\n",
		noun->name, toupper(noun->summary[0]), noun->summary + 1);
	put_commands(to, noun->name);
	fprintf(to, "\n'kvctxctl %s VERB --help' explains a command.\n", noun->name);
}

void ctl_help_command(FILE *to, const struct ctl_command *cmd)
{
	fputs("Usage: ", to);
	put_synopsis(to, cmd);
	fprintf(to, "\n%c%s.\n\n%s\n", toupper(cmd->summary[0]), cmd->summary + 1, cmd->text);
	if (cmd->args[0].kind)
		fputs("\nArguments:\n", to);
	for (const struct ctl_arg *a = cmd->args; a->kind; a++)
		put_row(to, a->meta, a->help);
	fputs("\nOptions:\n", to);
	put_options(to, cmd, cmd->options | OPTS_COMMON);
	fprintf(to, "\nExample:\n  %s\n\n%s", cmd->example, statuses);
}

/* The man page's sections COMMANDS and OPTIONS */

static void roff(FILE *to, const char *text)
{
	bool start = true;

	for (; *text; text++) {
		if (start && (*text == '.' || *text == '\''))
			fputs("\\&", to);
		if (*text == '\\')
			fputs("\\e", to);
		else if (*text == '-')
			fputs("\\-", to);
		else
			fputc(*text, to);
		start = *text == '\n';
	}
}

static void roff_options(FILE *to, const struct ctl_command *cmd, uint64_t set)
{
	char left[80];

	for (int i = 0; i < OPT_NR; i++) {
		if (!(set & 1ULL << i))
			continue;
		option_text(&ctl_options[i], left, sizeof(left));
		fputs(".TP\n.B ", to);
		roff(to, left + strspn(left, " "));
		fputc('\n', to);
		roff(to, ctl_option_help(cmd, i));
		fputc('\n', to);
	}
}

static void roff_synopsis(FILE *to, const struct ctl_command *cmd)
{
	char line[256] = "";
	FILE *mem = fmemopen(line, sizeof(line), "w");

	if (!mem)
		return;
	put_synopsis(mem, cmd);
	fclose(mem);
	roff(to, line);
}

void ctl_generate_man(FILE *to)
{
	fputs(".SH COMMANDS\n", to);
	for (const struct ctl_command *cmd = ctl_commands; cmd->noun; cmd++) {
		fputs(".SS ", to);
		roff_synopsis(to, cmd);
		fprintf(to, "\n%c", toupper(cmd->summary[0]));
		roff(to, cmd->summary + 1);
		fputs(".\n", to);
		roff(to, cmd->text);
		fputc('\n', to);
		for (const struct ctl_arg *a = cmd->args; a->kind; a++) {
			fprintf(to, ".TP\n.I %s\n", a->meta);
			roff(to, a->help);
			fputc('\n', to);
		}
		roff_options(to, cmd, cmd->options);
		fputs(".PP\nExample:\n.PP\n.RS\n.EX\n", to);
		roff(to, cmd->example);
		fputs("\n.EE\n.RE\n", to);
	}
	fputs(".SH OPTIONS\nThese go with every command.\n", to);
	roff_options(to, NULL, OPTS_COMMON);
}
