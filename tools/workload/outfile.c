// SPDX-License-Identifier: GPL-2.0
/* Output files that appear whole or not at all, see outfile.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "outfile.h"

static int open_directly(struct outfile *out, const char *path)
{
	if (is_stdout(path)) {
		int fd = dup(STDOUT_FILENO);

		if (fd < 0)
			return -errno;
		out->stream = fdopen(fd, "w");
	} else {
		out->stream = fopen(path, "we");
	}
	return out->stream ? 0 : -errno;
}

/* mkstemp() makes files that only the owner reads; give it the mode that fopen() would have */
static void usual_mode(int fd)
{
	mode_t mask = umask(0);

	umask(mask);
	(void)!fchmod(fd, 0666 & ~mask);
}

static int open_temp(struct outfile *out)
{
	int fd, ret;

	if (asprintf(&out->temp, "%s.XXXXXX", out->path) < 0) {
		out->temp = NULL;
		return -ENOMEM;
	}
	fd = mkostemp(out->temp, O_CLOEXEC);
	if (fd < 0) {
		ret = -errno;
		free(out->temp);
		out->temp = NULL;
		return ret;
	}
	usual_mode(fd);
	out->stream = fdopen(fd, "w");
	if (out->stream)
		return 0;
	ret = -errno;
	close(fd);
	return ret;
}

int outfile_open(struct outfile *out, const char *path)
{
	struct stat st;
	int ret;

	memset(out, 0, sizeof(*out));
	if (!path)
		return 0;
	if (is_stdout(path) || (!stat(path, &st) && !S_ISREG(st.st_mode)))
		return open_directly(out, path);
	/* A symbolic link to a file stays; the file is replaced */
	out->path = realpath(path, NULL);
	if (!out->path)
		out->path = strdup(path);
	ret = out->path ? open_temp(out) : -ENOMEM;
	if (ret)
		outfile_abort(out);
	return ret;
}

int outfile_commit(struct outfile *out)
{
	int ret = 0;

	if (fflush(out->stream) || ferror(out->stream))
		ret = -EIO;
	if (fclose(out->stream) && !ret)
		ret = -errno;
	out->stream = NULL;
	if (!ret && out->temp && rename(out->temp, out->path))
		ret = -errno;
	if (!ret) {
		free(out->temp);
		out->temp = NULL;
	}
	outfile_abort(out);
	return ret;
}

void outfile_abort(struct outfile *out)
{
	if (out->stream)
		fclose(out->stream);
	if (out->temp)
		unlink(out->temp);
	free(out->temp);
	free(out->path);
	memset(out, 0, sizeof(*out));
}
