// SPDX-License-Identifier: GPL-2.0
/*
 * kvctxd: options, pools at start, signals, and the loop that accepts.
 */
#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

#include "../common/size.h"
#include "attach.h"
#include "control.h"
#include "engine.h"
#include "kvctx.h"
#include "kvctxd.h"

#define EVENTS		16
#define END_SECONDS	25	/* that the end takes at most */
#define EXIT_BROKEN	3	/* kvctxd.8 says so */

struct options {
	const char *run;		/* directory of sockets */
	bool journal;			/* stderr goes there: say how important a line is */
};

static const char usage_text[] =
	"Usage: kvctxd [OPTION]... [DIR]...\n"
	"Serve pools of kvctx to the processes of this host, without the kernel module.\n"
	"\n"
	"Each DIR holds the members of a pool: files, block devices, or links to them. Its\n"
	"tenants are sockets, RUN/POOL/TENANT, that programs open as they open nodes of the\n"
	"module. kvctxctl --socket RUN/control manages pools and tenants.\n"
	"\n"
	"  -r, --run RUN          directory of the sockets (default /run/kvctx)\n"
	"  -p, --pools DIR        attach a pool from each directory in DIR, if it can be\n"
	"  -c, --connections N    serve so many connections at once (default 1024)\n"
	"  -u, --per-user N       so many of one user (default 512)\n"
	"  -m, --memory SIZE      for arenas, slots, events of one user (default: a quarter of all)\n"
	"  -g, --registered SIZE  of its own that one session may register (default: all)\n"
	"  -i, --index SIZE       that the index of a pool may take (default: a quarter of all)\n"
	"  -h, --help             explain this and exit\n"
	"  -V, --version          tell the version and exit\n"
	"\n"
	"SIGTERM and SIGINT close all sessions and detach all pools, which takes no longer\n"
	"than half a minute, also when a device does not answer.\n";

static bool main_journal;

static void main_log(void *arg, int priority, const char *text)
{
	(void)arg;
	if (main_journal)
		fprintf(stderr, "<%d>%s\n", priority, text);
	else
		fprintf(stderr, "kvctxd: %s\n", text);
}

static int main_usage(const char *why, const char *what)
{
	fprintf(stderr, "kvctxd: %s: %s\nTry 'kvctxd --help'.\n", what, why);
	return 2;
}

static bool main_number(const char *text, uint32_t *to)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	*to = (uint32_t)n;
	return *text && !*end && n > 0 && n <= 65536;
}

/* 0, or an exit status with 1 added */
static int main_options(int argc, char **argv, struct options *o)
{
	static const struct option names[] = {
		{ "run", required_argument, NULL, 'r' },
		{ "pools", required_argument, NULL, 'p' },
		{ "connections", required_argument, NULL, 'c' },
		{ "per-user", required_argument, NULL, 'u' },
		{ "memory", required_argument, NULL, 'm' },
		{ "registered", required_argument, NULL, 'g' },
		{ "index", required_argument, NULL, 'i' },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
		{ NULL },
	};
	uint64_t index_max;
	int c;

	while ((c = getopt_long(argc, argv, "r:p:c:u:m:g:i:hV", names, NULL)) >= 0) {
		switch (c) {
		case 'r':
			o->run = optarg;
			break;
		case 'p':
			kvd_pools_dir = optarg;
			break;
		case 'c':
		case 'u':
			if (!main_number(optarg, c == 'c' ? &kvd_conns_max : &kvd_conns_user))
				return 1 + main_usage("not a number from 1 to 65536", optarg);
			break;
		case 'm':
		case 'g':
			if (parse_size(optarg, c == 'm' ? &kvd_memory_user : &kvd_registered_max))
				return 1 + main_usage("not a size such as 512M, 64GiB", optarg);
			break;
		case 'i':
			if (parse_size(optarg, &index_max))
				return 1 + main_usage("not a size such as 512M, 64GiB", optarg);
			kve_index_max = index_max;
			break;
		case 'h':
			fputs(usage_text, stdout);
			return 1;
		case 'V':
			puts("kvctxd " KVCTX_VERSION);
			return 1;
		default:
			fputs("Try 'kvctxd --help'.\n", stderr);
			return 1 + 2;
		}
	}
	return 0;
}

/* Tell the service manager, as sd_notify(3) does, if it has asked for that */
static void main_notify(const char *state)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	const char *path = getenv("NOTIFY_SOCKET");
	int sock;

	if (!path || (*path != '/' && *path != '@') || strlen(path) >= sizeof(addr.sun_path))
		return;
	memcpy(addr.sun_path, path, strlen(path));
	if (*path == '@')
		addr.sun_path[0] = 0;
	sock = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (sock < 0)
		return;
	sendto(sock, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&addr,
	       (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path)));
	close(sock);
}

/* Each session has a handful */
static void main_raise_files(void)
{
	struct rlimit limit;

	if (!getrlimit(RLIMIT_NOFILE, &limit)) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

static int main_attach(const char *dir)
{
	char why[KVD_WHY];
	struct kvd_pool *p;
	int err;

	err = kvd_pool_attach(dir, &p, why);
	if (err) {
		main_log(NULL, LOG_ERR, why);
	} else {
		kvd_pages_begin(p);
		kvd_pool_put(p, false);
	}
	return err;
}

static int main_attach_found(const char *pools)
{
	struct dirent **found;
	int nr = scandir(pools, &found, NULL, alphasort);
	char *path;

	if (nr < 0) {
		fprintf(stderr, "kvctxd: %s: %s\n", pools, strerror(errno));
		return -errno;
	}
	for (int i = 0; i < nr; i++) {
		struct stat st;

		if (found[i]->d_name[0] != '.' && asprintf(&path, "%s/%s", pools, found[i]->d_name) > 0) {
			if (!stat(path, &st) && S_ISDIR(st.st_mode))
				main_attach(path);
			free(path);
		}
		free(found[i]);
	}
	free(found);
	return 0;
}

static int main_pools(char **dirs)
{
	int err = 0;

	if (!*dirs && !kvd_pools_dir)
		main_log(NULL, LOG_NOTICE, "no pool is named; kvctxctl pool attach, with our socket, has one served");
	for (; *dirs && !err; dirs++)
		err = main_attach(*dirs);
	if (!err && kvd_pools_dir)
		err = main_attach_found(kvd_pools_dir);
	return err;
}

/* A descriptor to wait for what ends us */
static int main_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	return signalfd(-1, &set, SFD_CLOEXEC);
}

static void main_loop(void)
{
	struct epoll_event events[EVENTS];
	bool go_on = true;

	while (go_on) {
		int nr = epoll_wait(kvd_loop, events, EVENTS, -1);

		for (int i = 0; i < nr; i++) {
			uint64_t id = events[i].data.u64;

			if (id == KVD_ID_SIGNAL)
				go_on = false;
			else if (id == KVD_ID_CONTROL)
				kvd_control_accept();
			else
				kvd_accept(id);
		}
	}
}

/* Whatever holds us: what was flushed is there, and the next attach finds the rest as after a crash */
static void main_late(int sig)
{
	static const char text[] = "kvctxd: still not at its end: pools are left as by a crash\n";
	ssize_t n = write(STDERR_FILENO, text, sizeof(text) - 1);

	(void)sig;
	_exit(n < 0 ? 2 : 1);
}

/*
 * The engine serves nothing any more: its end is one that a service manager sees, and clients. It leaves the pools as a
 * kill does, since what the engine knows of them may be wrong.
 */
static void main_broken(void)
{
	_exit(EXIT_BROKEN);
}

/* true: all pools are detached */
static bool main_end(void)
{
	struct kvd_pool **pools;
	char why[KVD_WHY];
	bool clean = true;
	int nr;

	signal(SIGALRM, main_late);
	alarm(END_SECONDS);
	kvd_control_stop();
	kvd_hang_up();
	nr = kvd_pools_hold(&pools);
	for (int i = 0; i < nr; i++) {
		/* nobody is there to open or change one: a device may hold what belongs to them */
		if (kvd_pool_detach(pools[i], why)) {
			main_log(NULL, LOG_WARNING, why);
			clean = false;
		}
		kvd_pool_put(pools[i], false);
	}
	if (nr >= 0)
		free(pools);
	kvd_attach_forget_all();
	kvd_run_close();
	return clean;
}

int main(int argc, char **argv)
{
	struct options o = { .run = "/run/kvctx" };
	char why[KVD_WHY];
	int status, signals;

	kvd_registered_max = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	kvd_memory_user = kvd_registered_max / 4;
	status = main_options(argc, argv, &o);
	if (status)
		return status - 1;
	main_journal = getenv("JOURNAL_STREAM");
	main_raise_files();
	kvctx_set_log(main_log, NULL);
	kve_member_told = kvd_event_member;
	kve_broken_told = main_broken;
	signals = main_signals();
	kvd_loop = epoll_create1(EPOLL_CLOEXEC);
	if (signals < 0 || kvd_loop < 0 || kvd_watch(signals, KVD_ID_SIGNAL)) {
		fprintf(stderr, "kvctxd: %s\n", strerror(errno));
		return 1;
	}
	if (kvd_run_open(o.run, why)) {
		main_log(NULL, LOG_ERR, why);
		return 1;
	}
	kvd_attach_forget_all();
	if (kvd_control_start(why)) {
		main_log(NULL, LOG_ERR, why);
		return 1;
	}
	status = main_pools(argv + optind) ? 1 : 0;
	if (!status) {
		main_notify("READY=1");
		main_loop();
		main_notify("STOPPING=1");
	}
	if (main_end())
		return status;
	/* threads of the engine have the pools in their hands */
	_exit(1);
}
