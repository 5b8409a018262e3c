// SPDX-License-Identifier: GPL-2.0
/*
 * Values of arguments and options, messages, small helpers.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../../kmod/core/media/format.h"
#include "../common/size.h"
#include "ctl.h"

static void vmessage(const char *what, const char *fmt, va_list ap)
{
	fflush(stdout);
	fprintf(stderr, "kvctxctl: %s: ", what);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
}

void ctl_error(const char *what, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vmessage(what, fmt, ap);
	va_end(ap);
}

void ctl_command_name(const struct ctl_command *cmd, char *buf, size_t size)
{
	snprintf(buf, size, "%s%s%s", cmd->noun, cmd->verb ? " " : "", cmd->verb ? cmd->verb : "");
}

/* The command and the names it was given are the what */
void ctl_command_error(const struct ctl *c, const char *fmt, ...)
{
	char what[256];
	va_list ap;

	ctl_command_name(c->cmd, what, sizeof(what));
	for (int i = 0; i < c->nr_args && !c->cmd->args[i].many && c->cmd->args[i].kind; i++) {
		size_t used = strlen(what);

		snprintf(what + used, sizeof(what) - used, " %s", c->args[i]);
	}
	va_start(ap, fmt);
	vmessage(what, fmt, ap);
	va_end(ap);
}

int ctl_status_of(int err)
{
	switch (err) {
	case 0:
		return CTL_OK;
	case EPERM:
	case EACCES:
	case ENOENT:
	case ENODEV:
	case ENXIO:
		return CTL_NODEV;
	case EOPNOTSUPP:
		return CTL_NOSUPP;
	default:
		return CTL_FAILED;
	}
}

static bool digits(const char *text)
{
	return *text && !text[strspn(text, "0123456789")];
}

static const char *parse_number(const char *text, uint64_t max, uint64_t *num)
{
	errno = 0;
	*num = digits(text) ? strtoull(text, NULL, 10) : 0;
	if (!digits(text))
		return "not a number";
	return errno || *num > max ? "number too large" : NULL;
}

static const char *parse_bytes(const char *text, uint64_t *num)
{
	int ret = parse_size(text, num);

	if (ret == -EINVAL)
		return "not a size such as 4096, 64K, 256MiB, 1G";
	return ret ? "size too large" : NULL;
}

/* A size that is not 0, or one of the words */
static const char *parse_rate(const char *text, bool on, uint64_t *num)
{
	*num = strcmp(text, "off") ? CTL_DEFAULT : 0;
	if (!*num || (on && !strcmp(text, "on")))
		return NULL;
	if (parse_size(text, num))
		return on ? "not on, off or bytes a second such as 512M" : "not off or a size such as 500G";
	return *num ? NULL : "0 is said as 'off'";
}

static const char *parse_most(const char *text, uint64_t *num)
{
	*num = 0;
	if (!strcmp(text, "off"))
		return NULL;
	if (parse_number(text, UINT32_MAX, num))
		return "not off or a number";
	return *num ? NULL : "0 is said as 'off'";
}

static const char *parse_seconds(const char *text, uint64_t *num)
{
	size_t whole = strspn(text, "0123456789");
	size_t part = text[whole] == '.' ? strspn(text + whole + 1, "0123456789") : 0;
	double s;

	if (!whole || text[whole + (text[whole] == '.') + part] || (text[whole] && !part))
		return "not a number of seconds";
	s = strtod(text, NULL);
	if (s < 0.1 || s > 86400)
		return "not between 0.1 and 86400 seconds";
	*num = (uint64_t)(s * 1000 + 0.5);
	return NULL;
}

static const char *parse_mode(const char *text, uint64_t *num)
{
	if (!*text || strlen(text) > 4 || text[strspn(text, "01234567")])
		return "not permission bits in octal, such as 0660";
	*num = strtoull(text, NULL, 8);
	return *num > 0777 ? "only permission bits are allowed, such as 0660" : NULL;
}

static const char *parse_user(const char *text, uint64_t *num)
{
	const struct passwd *pw;

	if (digits(text))
		return parse_number(text, UINT32_MAX - 1, num);
	pw = getpwnam(text);
	if (!pw)
		return "no such user";
	*num = pw->pw_uid;
	return NULL;
}

static const char *parse_group(const char *text, uint64_t *num)
{
	const struct group *gr;

	if (digits(text))
		return parse_number(text, UINT32_MAX - 1, num);
	gr = getgrnam(text);
	if (!gr)
		return "no such group";
	*num = gr->gr_gid;
	return NULL;
}

static const char *parse_choice(enum ctl_kind kind, const char *text, uint64_t *num)
{
	const char *const *choice = ctl_choices(kind);

	for (*num = 0; choice[*num]; (*num)++)
		if (!strcmp(choice[*num], text))
			return NULL;
	return kind == KIND_FORMAT ? "not text or json" : "not tcp, rdma, loop or fc";
}

static const char *parse_weight(const char *text, uint64_t *num)
{
	const char *why = parse_number(text, KVC_WEIGHT_MAX, num);

	return why || *num ? why : "not 1 to 10000";
}

const char *ctl_value_parse(enum ctl_kind kind, const char *text, struct ctl_value *v)
{
	v->text = text;
	v->set = true;
	switch (kind) {
	case KIND_NAME:
	case KIND_POOL:
	case KIND_TENANT:
		return kvc_name_ok(text) ? NULL :
			"a name has 1 to 31 of A-Z a-z 0-9 . _ - and begins with neither . nor -";
	case KIND_SIZE:
		return parse_bytes(text, &v->num);
	case KIND_RATE:
	case KIND_LIMIT:
		return parse_rate(text, kind == KIND_RATE, &v->num);
	case KIND_MOST:
		return parse_most(text, &v->num);
	case KIND_WEIGHT:
		return parse_weight(text, &v->num);
	case KIND_NUMBER:
		return parse_number(text, INT32_MAX, &v->num);
	case KIND_SECONDS:
		return parse_seconds(text, &v->num);
	case KIND_MODE:
		return parse_mode(text, &v->num);
	case KIND_USER:
		return parse_user(text, &v->num);
	case KIND_GROUP:
		return parse_group(text, &v->num);
	case KIND_TRANSPORT:
	case KIND_FORMAT:
		return parse_choice(kind, text, &v->num);
	case KIND_NQN:
		return strlen(text) < 224 && *text ? NULL : "an NQN has 1 to 223 characters";
	default:
		return *text ? NULL : "empty";
	}
}

void ctl_uuid_text(const uint8_t uuid[16], char text[37])
{
	for (int i = 0; i < 16; i++) {
		bool dash = i == 4 || i == 6 || i == 8 || i == 10;

		text += sprintf(text, "%s%02x", dash ? "-" : "", uuid[i]);
	}
}

/* The kernel keeps a path for its users: make it one that holds in every directory */
char *path_absolute(const char *path)
{
	char *cwd = *path == '/' ? strdup("") : getcwd(NULL, 0), *full = NULL;

	if (cwd && asprintf(&full, "%s%s%s", cwd, *path == '/' ? "" : "/", path) < 0)
		full = NULL;
	free(cwd);
	return full;
}

/* The first line of a file of the system; false: there is none */
bool ctl_read_line(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);

	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = 0;
	text[strcspn(text, "\n")] = 0;
	return *text;
}

/* RFC 9562 version 4 */
uint64_t ctl_now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

void ctl_sleep_ms(uint64_t ms)
{
	struct timespec ts = { (time_t)(ms / 1000), (long)(ms % 1000) * 1000000 };

	nanosleep(&ts, NULL);
}
