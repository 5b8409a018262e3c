// SPDX-License-Identifier: GPL-2.0
/*
 * What the table says, in three forms: --help, bash completion, the man page's part on commands.
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

static void put_options(FILE *to, uint64_t set)
{
	char left[80];

	for (int i = 0; i < OPT_NR; i++) {
		if (!(set & 1ULL << i))
			continue;
		option_text(&ctl_options[i], left, sizeof(left));
		put_row(to, left, ctl_options[i].help);
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
	put_options(to, OPTS_COMMON | OPT(VERSION));
	fputs("\n'kvctxctl COMMAND --help' explains a command.\n", to);
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
	put_options(to, cmd->options | OPTS_COMMON);
	fprintf(to, "\nExample:\n  %s\n\n%s", cmd->example, statuses);
}

/* Bash completion */

static const char *kind_word(enum ctl_kind kind)
{
	switch (kind) {
	case KIND_POOL:
		return "pool";
	case KIND_TENANT:
		return "tenant";
	case KIND_DEVICE:
		return "device";
	case KIND_USER:
		return "user";
	case KIND_GROUP:
		return "group";
	case KIND_TRANSPORT:
		return "transport";
	case KIND_FORMAT:
		return "format";
	default:
		return "free";
	}
}

static const char completion_head[] =
"# bash completion for kvctxctl; generated from its command table\n\n"
"# _kvctxctl_offer KIND [POOL]: the words that fit $cur\n"
"_kvctxctl_offer() {\n"
"	local offer=''\n\n"
"	case $1 in\n"
"		pool) offer=$(ls /dev/kvctx 2> /dev/null) ;;\n"
"		tenant) offer=$(ls \"/dev/kvctx/$2\" 2> /dev/null) ;;\n"
"		device) compopt -o filenames 2> /dev/null; mapfile -t COMPREPLY < <(compgen -f -- \"$cur\"); return ;;\n"
"		user) mapfile -t COMPREPLY < <(compgen -u -- \"$cur\"); return ;;\n"
"		group) mapfile -t COMPREPLY < <(compgen -g -- \"$cur\"); return ;;\n";

static const char completion_tail[] =
"_kvctxctl() {\n"
"	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
"	local i kind verbs='' opts='' args='' skip=0 words=()\n\n"
"	COMPREPLY=()\n"
"	# bash splits --name=value at the equals sign\n"
"	[ \"$prev\" != = ] || prev=${COMP_WORDS[COMP_CWORD-2]}\n"
"	if [ \"$cur\" = = ]; then\n"
"		cur=\n"
"	fi\n"
"	for ((i = 1; i < COMP_CWORD; i++)); do\n"
"		case ${COMP_WORDS[i]} in\n"
"			=) i=$((i + 1)) ;;\n"
"			-*)\n"
"				kind=$(_kvctxctl_value \"${COMP_WORDS[i]}\")\n"
"				[ -z \"$kind\" ] || [ \"${COMP_WORDS[i+1]}\" = = ] || i=$((i + 1)) ;;\n"
"			*) words+=(\"${COMP_WORDS[i]}\") ;;\n"
"		esac\n"
"	done\n"
"	kind=$(_kvctxctl_value \"$prev\")\n"
"	if [ -n \"$kind\" ]; then\n"
"		_kvctxctl_offer \"$kind\"\n"
"		return\n"
"	fi\n"
"	_kvctxctl_command \"${words[0]}\" \"${words[1]}\"\n"
"	if [[ $cur == -* ]]; then\n"
"		mapfile -t COMPREPLY < <(compgen -W \"$opts\" -- \"$cur\")\n"
"	elif [ -n \"$verbs\" ]; then\n"
"		mapfile -t COMPREPLY < <(compgen -W \"$verbs\" -- \"$cur\")\n"
"	else\n"
"		read -ra args <<< \"$args\"\n"
"		i=$((${#words[@]} - skip))\n"
"		kind=${args[i]}\n"
"		# the last argument may repeat\n"
"		if [ -z \"$kind\" ] && [ ${#args[@]} -gt 0 ] && [[ ${args[-1]} == *... ]]; then\n"
"			kind=${args[-1]}\n"
"		fi\n"
"		[ -z \"$kind\" ] || _kvctxctl_offer \"${kind%...}\" \"${words[skip]}\"\n"
"	fi\n"
"}\n\n"
"complete -F _kvctxctl kvctxctl\n";

static void completion_choices(FILE *to, enum ctl_kind kind)
{
	fprintf(to, "\t\t%s) offer='", kind_word(kind));
	for (const char *const *w = ctl_choices(kind); *w; w++)
		fprintf(to, "%s%s", *w, w[1] ? " " : "");
	fputs("' ;;\n", to);
}

/* _kvctxctl_value OPTION: the kind of its value, nothing if it takes none or may go without */
static void completion_values(FILE *to)
{
	fputs("_kvctxctl_value() {\n\tcase $1 in\n", to);
	for (int i = 0; i < OPT_NR; i++) {
		const struct ctl_option *o = &ctl_options[i];

		if (o->kind == KIND_FLAG || o->value_optional)
			continue;
		fprintf(to, "\t\t--%s", o->name);
		if (o->letter)
			fprintf(to, " | -%c", o->letter);
		fprintf(to, ") echo %s ;;\n", kind_word(o->kind));
	}
	fputs("\tesac\n}\n\n", to);
}

static void completion_option_words(FILE *to, uint64_t set)
{
	fputs("opts='", to);
	for (int i = 0, n = 0; i < OPT_NR; i++)
		if (set & 1ULL << i)
			fprintf(to, "%s--%s", n++ ? " " : "", ctl_options[i].name);
	fputc('\'', to);
}

static void completion_command(FILE *to, const struct ctl_command *cmd)
{
	fprintf(to, "\t\t'%s %s'%s) skip=%d args='", cmd->noun, cmd->verb ? cmd->verb : "", cmd->verb ? "" : "*",
		cmd->verb ? 2 : 1);
	for (const struct ctl_arg *a = cmd->args; a->kind; a++)
		fprintf(to, "%s%s%s", a == cmd->args ? "" : " ", kind_word(a->kind), a->many ? "..." : "");
	fputs("' ", to);
	completion_option_words(to, cmd->options | OPTS_COMMON);
	fputs(" ;;\n", to);
}

static void completion_nouns(FILE *to)
{
	for (const struct ctl_noun *n = ctl_nouns; n->name; n++) {
		fprintf(to, "\t\t'%s '*) verbs='", n->name);
		for (const struct ctl_command *cmd = ctl_commands; cmd->noun; cmd++)
			if (!strcmp(cmd->noun, n->name))
				fprintf(to, "%s ", cmd->verb);
		fputs("' ", to);
		completion_option_words(to, OPT(HELP));
		fputs(" ;;\n", to);
	}
	fputs("\t\t*) verbs='", to);
	for (const struct ctl_noun *n = ctl_nouns; n->name; n++)
		fprintf(to, "%s ", n->name);
	for (const struct ctl_command *cmd = ctl_commands; cmd->noun; cmd++)
		if (!cmd->verb)
			fprintf(to, "%s ", cmd->noun);
	fputs("' ", to);
	completion_option_words(to, OPTS_COMMON | OPT(VERSION));
	fputs(" ;;\n", to);
}

void ctl_generate_completion(FILE *to)
{
	fputs(completion_head, to);
	completion_choices(to, KIND_TRANSPORT);
	completion_choices(to, KIND_FORMAT);
	fputs("\tesac\n\tmapfile -t COMPREPLY < <(compgen -W \"$offer\" -- \"$cur\")\n}\n\n", to);
	completion_values(to);
	fputs("# _kvctxctl_command NOUN VERB: sets verbs or skip, args; and opts\n"
	      "_kvctxctl_command() {\n\tcase \"$1 $2\" in\n", to);
	for (const struct ctl_command *cmd = ctl_commands; cmd->noun; cmd++)
		completion_command(to, cmd);
	completion_nouns(to);
	fputs("\tesac\n}\n\n", to);
	fputs(completion_tail, to);
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

static void roff_options(FILE *to, uint64_t set)
{
	char left[80];

	for (int i = 0; i < OPT_NR; i++) {
		if (!(set & 1ULL << i))
			continue;
		option_text(&ctl_options[i], left, sizeof(left));
		fputs(".TP\n.B ", to);
		roff(to, left + strspn(left, " "));
		fputc('\n', to);
		roff(to, ctl_options[i].help);
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
		roff_options(to, cmd->options);
		fputs(".PP\nExample:\n.PP\n.RS\n.EX\n", to);
		roff(to, cmd->example);
		fputs("\n.EE\n.RE\n", to);
	}
	fputs(".SH OPTIONS\nThese go with every command.\n", to);
	roff_options(to, OPTS_COMMON);
}
