// SPDX-License-Identifier: GPL-2.0
/*
 * Completion for bash, zsh and fish from the table.
 *
 * Each script finds the command among the words that are no options, nor values of options, and offers its options and,
 * by position, its arguments; both by their kind.
 */
#include <string.h>

#include "ctl.h"

static const char *kind_word(enum ctl_kind kind)
{
	switch (kind) {
	case KIND_POOL:
		return "pool";
	case KIND_TENANT:
		return "tenant";
	case KIND_COMMAND:
		return "command";
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

static void first_words(FILE *to)
{
	for (const struct ctl_noun *n = ctl_nouns; n->name; n++)
		fprintf(to, "%s ", n->name);
	for (const struct ctl_command *cmd = ctl_commands; cmd->noun; cmd++)
		if (!cmd->verb)
			fprintf(to, "%s ", cmd->noun);
}

/* @text between single quotes of a shell, with a backslash before each of @special */
static void quoted(FILE *to, const char *text, const char *special)
{
	for (; *text; text++) {
		if (*text == '\'')
			fputs("'\\'", to);
		else if (strchr(special, *text))
			fputc('\\', to);
		fputc(*text, to);
	}
}

static bool takes_value(const struct ctl_option *o)
{
	return o->kind != KIND_FLAG && !o->value_optional;
}

/* The options that the word behind them belongs to */
static void value_options(FILE *to)
{
	for (int i = 0; i < OPT_NR; i++) {
		if (!takes_value(&ctl_options[i]))
			continue;
		fprintf(to, "--%s ", ctl_options[i].name);
		if (ctl_options[i].letter)
			fprintf(to, "-%c ", ctl_options[i].letter);
	}
}

/* bash */

static const char bash_head[] =
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

static const char bash_tail[] =
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

static void bash_choices(FILE *to, enum ctl_kind kind)
{
	fprintf(to, "\t\t%s) offer='", kind_word(kind));
	for (const char *const *w = ctl_choices(kind); *w; w++)
		fprintf(to, "%s%s", *w, w[1] ? " " : "");
	fputs("' ;;\n", to);
}

/*
 * Options of different commands may share a letter: it stands with the first of them. Values of two kinds cannot be told
 * apart so, which shellcheck sees.
 */
static bool letter_is_new(int option)
{
	const struct ctl_option *o = &ctl_options[option];

	for (int i = 0; i < option; i++)
		if (takes_value(&ctl_options[i]) && ctl_options[i].letter == o->letter &&
		    !strcmp(kind_word(ctl_options[i].kind), kind_word(o->kind)))
			return false;
	return true;
}

/* _kvctxctl_value OPTION: the kind of its value, nothing if it takes none or may go without */
static void bash_values(FILE *to)
{
	fputs("_kvctxctl_value() {\n\tcase $1 in\n", to);
	for (int i = 0; i < OPT_NR; i++) {
		const struct ctl_option *o = &ctl_options[i];

		if (!takes_value(o))
			continue;
		fprintf(to, "\t\t--%s", o->name);
		if (o->letter && letter_is_new(i))
			fprintf(to, " | -%c", o->letter);
		fprintf(to, ") echo %s ;;\n", kind_word(o->kind));
	}
	fputs("\tesac\n}\n\n", to);
}

static void bash_option_words(FILE *to, uint64_t set)
{
	fputs("opts='", to);
	for (int i = 0, n = 0; i < OPT_NR; i++)
		if (set & 1ULL << i)
			fprintf(to, "%s--%s", n++ ? " " : "", ctl_options[i].name);
	fputc('\'', to);
}

static void bash_command(FILE *to, const struct ctl_command *cmd)
{
	fprintf(to, "\t\t'%s %s'%s) skip=%d args='", cmd->noun, cmd->verb ? cmd->verb : "", cmd->verb ? "" : "*",
		cmd->verb ? 2 : 1);
	for (const struct ctl_arg *a = cmd->args; a->kind; a++)
		fprintf(to, "%s%s%s", a == cmd->args ? "" : " ", kind_word(a->kind), a->many ? "..." : "");
	fputs("' ", to);
	bash_option_words(to, cmd->options | OPTS_COMMON);
	fputs(" ;;\n", to);
}

static void bash_nouns(FILE *to)
{
	for (const struct ctl_noun *n = ctl_nouns; n->name; n++) {
		fprintf(to, "\t\t'%s '*) verbs='", n->name);
		for (const struct ctl_command *cmd = ctl_commands; cmd->noun; cmd++)
			if (!strcmp(cmd->noun, n->name))
				fprintf(to, "%s ", cmd->verb);
		fputs("' ", to);
		bash_option_words(to, OPT(HELP));
		fputs(" ;;\n", to);
	}
	fputs("\t\t*) verbs='", to);
	first_words(to);
	fputs("' ", to);
	bash_option_words(to, OPTS_COMMON | OPT(VERSION));
	fputs(" ;;\n", to);
}

static void bash(FILE *to)
{
	fputs(bash_head, to);
	bash_choices(to, KIND_TRANSPORT);
	bash_choices(to, KIND_FORMAT);
	fputs("\t\tcommand) offer='", to);
	first_words(to);
	fputs("' ;;\n", to);
	fputs("\tesac\n\tmapfile -t COMPREPLY < <(compgen -W \"$offer\" -- \"$cur\")\n}\n\n", to);
	bash_values(to);
	fputs("# _kvctxctl_command NOUN VERB: sets verbs or skip, args; and opts\n"
	      "_kvctxctl_command() {\n\tcase \"$1 $2\" in\n", to);
	for (const struct ctl_command *cmd = ctl_commands; cmd->noun; cmd++)
		bash_command(to, cmd);
	bash_nouns(to);
	fputs("\tesac\n}\n\n", to);
	fputs(bash_tail, to);
}

/* zsh */

static const char zsh_head[] =
"#compdef kvctxctl\n"
"# zsh completion for kvctxctl; generated from its command table\n\n"
"_kvctxctl_pool() {\n"
"	compadd -- /dev/kvctx/*(N:t)\n"
"}\n\n"
"_kvctxctl_tenant() {\n"
"	compadd -- /dev/kvctx/$line[1]/*(N:t)\n"
"}\n\n"
"_kvctxctl() {\n"
"	local -a head values list line\n"
"	local -i i\n\n";

static const char zsh_find[] =
"	for ((i = 2; i < CURRENT; i++)); do\n"
"		case $words[i] in\n"
"			-*) (( ! $values[(Ie)$words[i]] )) || (( i++ )) ;;\n"
"			*)\n"
"				head+=($words[i])\n"
"				(( $list[(Ie)$head[1]] && $#head < 2 )) || break ;;\n"
"		esac\n"
"	done\n"
"	# what follows the command is all that is looked at below\n"
"	if (( i < CURRENT )); then\n"
"		words=(\"$words[1]\" \"${(@)words[i+1,-1]}\")\n"
"		(( CURRENT -= i - 1 ))\n"
"	fi\n"
"	case $head in\n";

static void zsh_action(FILE *to, enum ctl_kind kind)
{
	const char *const *choices = ctl_choices(kind);

	if (choices) {
		fputc('(', to);
		for (const char *const *w = choices; *w; w++)
			fprintf(to, "%s%s", *w, w[1] ? " " : "");
		fputc(')', to);
	} else if (kind == KIND_POOL || kind == KIND_TENANT) {
		fprintf(to, "_kvctxctl_%s", kind_word(kind));
	} else if (kind == KIND_USER || kind == KIND_GROUP) {
		fprintf(to, "_%ss", kind_word(kind));
	} else if (kind == KIND_COMMAND) {
		fputc('(', to);
		first_words(to);
		fputc(')', to);
	} else {
		fputs(kind == KIND_DEVICE ? "_files" : " ", to);
	}
}

static void zsh_option(FILE *to, const struct ctl_command *cmd, int id)
{
	const struct ctl_option *o = &ctl_options[id];
	bool value = o->kind != KIND_FLAG;

	fputs(" \\\n\t\t\t", to);
	if (o->letter)
		fprintf(to, "'(-%c --%s)'{-%c%s,--%s%s}", o->letter, o->name, o->letter, value ? "+" : "", o->name,
			value ? "=" : "");
	else
		fprintf(to, "--%s%s", o->name, value ? "=" : "");
	fputs("'[", to);
	quoted(to, ctl_option_help(cmd, id), "[]:\\");
	fputc(']', to);
	if (value) {
		fprintf(to, "%s%s:", o->value_optional ? "::" : ":", o->meta);
		zsh_action(to, o->kind);
	}
	fputc('\'', to);
}

static void zsh_command(FILE *to, const struct ctl_command *cmd)
{
	char name[64];

	ctl_command_name(cmd, name, sizeof(name));
	fprintf(to, "\t'%s')\n\t\t_arguments -s -S", name);
	for (int i = 0; i < OPT_NR; i++)
		if ((cmd->options | OPTS_COMMON) >> i & 1)
			zsh_option(to, cmd, i);
	for (const struct ctl_arg *a = cmd->args; a->kind; a++) {
		fputs(" \\\n\t\t\t", to);
		if (a->many)
			fprintf(to, "'*:%s:", a->meta);
		else
			fprintf(to, "'%d:%s:", (int)(a - cmd->args) + 1, a->meta);
		zsh_action(to, a->kind);
		fputc('\'', to);
	}
	fputs(" ;;\n", to);
}

/* The words that may come first, or after @noun */
static void zsh_words(FILE *to, const char *noun)
{
	fprintf(to, "\t%s)\n\t\tlist=(", noun ? noun : "''");
	for (const struct ctl_noun *n = ctl_nouns; !noun && n->name; n++) {
		fprintf(to, "\n\t\t\t'%s:", n->name);
		quoted(to, n->summary, "\\");
		fputc('\'', to);
	}
	for (const struct ctl_command *cmd = ctl_commands; cmd->noun; cmd++) {
		if (noun ? strcmp(cmd->noun, noun) : cmd->verb != NULL)
			continue;
		fprintf(to, "\n\t\t\t'%s:", noun ? cmd->verb : cmd->noun);
		quoted(to, cmd->summary, "\\");
		fputc('\'', to);
	}
	fputs(")\n\t\t_describe command list ;;\n", to);
}

static void zsh(FILE *to)
{
	fputs(zsh_head, to);
	fputs("	values=(", to);
	value_options(to);
	fputs(")\n	list=(", to);
	for (const struct ctl_noun *n = ctl_nouns; n->name; n++)
		fprintf(to, "%s ", n->name);
	fputs(")\n", to);
	fputs(zsh_find, to);
	zsh_words(to, NULL);
	for (const struct ctl_noun *n = ctl_nouns; n->name; n++)
		zsh_words(to, n->name);
	for (const struct ctl_command *cmd = ctl_commands; cmd->noun; cmd++)
		zsh_command(to, cmd);
	fputs("	esac\n}\n\n_kvctxctl \"$@\"\n", to);
}

/* fish */

static const char fish_head[] =
"# fish completion for kvctxctl; generated from its command table\n\n"
"# The words before the cursor that are neither options nor their values\n"
"function __kvctxctl_words\n"
"	set -l skip 0\n"
"	for word in (commandline -opc)[2..-1]\n"
"		if test $skip = 1\n"
"			set skip 0\n"
"		else if contains -- $word $__kvctxctl_values\n"
"			set skip 1\n"
"		else if not string match -q -- '-*' $word\n"
"			echo $word\n"
"		end\n"
"	end\n"
"end\n\n"
"# __kvctxctl_at WORD...: are these all of them?\n"
"function __kvctxctl_at\n"
"	test \"$(__kvctxctl_words)\" = \"$(string join \\n -- $argv)\"\n"
"end\n\n"
"# __kvctxctl_in WORD...: do they begin so?\n"
"function __kvctxctl_in\n"
"	set -l words (__kvctxctl_words)\n"
"	test (count $words) -ge (count $argv); and test \"$words[1..$(count $argv)]\" = \"$argv\"\n"
"end\n\n"
"# __kvctxctl_arg N MANY WORD...: do they begin so, and is argument N next, or with MANY a later one?\n"
"function __kvctxctl_arg\n"
"	set -l n (math (count (__kvctxctl_words)) - (count $argv[3..-1]))\n"
"	__kvctxctl_in $argv[3..-1]; and begin; test $n = $argv[1]; or test $argv[2] = 1 -a $n -gt $argv[1]; end\n"
"end\n\n"
"function __kvctxctl_names\n"
"	for path in (string join / /dev/kvctx $argv)/*\n"
"		path basename -- $path\n"
"	end\n"
"end\n\n"
"complete -c kvctxctl -f\n";

static void fish_offer(FILE *to, enum ctl_kind kind)
{
	const char *const *choices = ctl_choices(kind);

	switch (kind) {
	case KIND_POOL:
		fputs(" -a '(__kvctxctl_names)'", to);
		break;
	case KIND_TENANT:
		fputs(" -a '(__kvctxctl_names (__kvctxctl_words)[3])'", to);
		break;
	case KIND_USER:
	case KIND_GROUP:
		fprintf(to, " -a '(__fish_complete_%ss)'", kind_word(kind));
		break;
	case KIND_COMMAND:
		fputs(" -a '", to);
		first_words(to);
		fputc('\'', to);
		break;
	case KIND_DEVICE:
		fputs(" -F", to);
		break;
	default:
		for (const char *const *w = choices; w && *w; w++)
			fprintf(to, "%s%s%s", w == choices ? " -a '" : " ", *w, w[1] ? "" : "'");
	}
}

static void fish_command(FILE *to, const struct ctl_command *cmd)
{
	char name[64];

	ctl_command_name(cmd, name, sizeof(name));
	fprintf(to, "complete -c kvctxctl -n '__kvctxctl_at%s%s' -a %s -d '", cmd->verb ? " " : "",
		cmd->verb ? cmd->noun : "", cmd->verb ? cmd->verb : cmd->noun);
	quoted(to, cmd->summary, "\\");
	fputs("'\n", to);
	for (int i = 0; i < OPT_NR; i++) {
		const struct ctl_option *o = &ctl_options[i];

		if (!((cmd->options | OPTS_COMMON) >> i & 1))
			continue;
		fprintf(to, "complete -c kvctxctl -n '__kvctxctl_in %s' -l %s", name, o->name);
		if (o->letter)
			fprintf(to, " -s %c", o->letter);
		fputs(" -d '", to);
		quoted(to, ctl_option_help(cmd, i), "\\");
		fputc('\'', to);
		if (takes_value(o)) {
			fputs(o->kind == KIND_DEVICE ? " -r" : " -x", to);
			fish_offer(to, o->kind);
		}
		fputc('\n', to);
	}
	for (const struct ctl_arg *a = cmd->args; a->kind; a++) {
		fprintf(to, "complete -c kvctxctl -n '__kvctxctl_arg %d %d %s'", (int)(a - cmd->args), a->many, name);
		fish_offer(to, a->kind);
		fputc('\n', to);
	}
}

static void fish(FILE *to)
{
	fputs(fish_head, to);
	fputs("set -g __kvctxctl_values ", to);
	value_options(to);
	fputc('\n', to);
	for (const struct ctl_noun *n = ctl_nouns; n->name; n++) {
		fprintf(to, "complete -c kvctxctl -n __kvctxctl_at -a %s -d '", n->name);
		quoted(to, n->summary, "\\");
		fputs("'\n", to);
	}
	for (const struct ctl_command *cmd = ctl_commands; cmd->noun; cmd++)
		fish_command(to, cmd);
}

bool ctl_generate_completion(FILE *to, const char *file)
{
	if (!strcmp(file, "kvctxctl"))
		bash(to);
	else if (!strcmp(file, "_kvctxctl"))
		zsh(to);
	else if (!strcmp(file, "kvctxctl.fish"))
		fish(to);
	else
		return false;
	return true;
}
