// SPDX-License-Identifier: GPL-2.0
/*
 * exporter: metrics for Prometheus over HTTP, on a Unix socket or a port.
 *
 * One connection at a time, one request a connection: a scrape takes a millisecond, and who does not send his request
 * within SECONDS, or does not take the answer within as many, is hung up on. The kernel, or kvctxd, is asked at each scrape anew; while there is none, a scrape says
 * 503 and the exporter stays.
 */
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "metrics.h"

#define WHERE		"127.0.0.1:9585"
#define SECONDS		5
#define REQUEST_MAX	8192

static int listen_refuse(const char *where, int fd, const char *why)
{
	ctl_error(where, "%s", why);
	if (fd >= 0)
		close(fd);
	return -1;
}

/* A socket in the file system; one that nobody listens on any more is taken away */
static int listen_unix(const char *path)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct stat st;

	if (fd < 0)
		return listen_refuse(path, fd, strerror(errno));
	if (strlen(path) >= sizeof(addr.sun_path))
		return listen_refuse(path, fd, strerror(ENAMETOOLONG));
	strcpy(addr.sun_path, path);
	if (!connect(fd, (struct sockaddr *)&addr, sizeof(addr)))
		return listen_refuse(path, fd, "somebody listens there");
	if (errno == ECONNREFUSED && !lstat(path, &st) && S_ISSOCK(st.st_mode))
		unlink(path);
	if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) || listen(fd, SOMAXCONN))
		return listen_refuse(path, fd, strerror(errno));
	return fd;
}

static int listen_one(const char *where, const struct addrinfo *a)
{
	int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol), one = 1;

	if (fd < 0)
		return listen_refuse(where, fd, strerror(errno));
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, a->ai_addr, a->ai_addrlen) || listen(fd, SOMAXCONN))
		return listen_refuse(where, fd, strerror(errno));
	return fd;
}

/* [HOST:]PORT; an address with colons stands in brackets. Without a host, this one */
static int listen_port(const char *where)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE }, *found;
	const char *colon = strrchr(where, ':'), *port = colon ? colon + 1 : where;
	char host[256] = "127.0.0.1";
	int err, fd;

	if (colon)
		snprintf(host, sizeof(host), "%.*s", (int)(colon - where), where);
	if (*host == '[' && host[strlen(host) - 1] == ']') {
		host[strlen(host) - 1] = 0;
		memmove(host, host + 1, strlen(host));
	}
	err = getaddrinfo(*host ? host : NULL, port, &hints, &found);
	if (err)
		return listen_refuse(where, -1, gai_strerror(err));
	fd = listen_one(where, found);
	freeaddrinfo(found);
	return fd;
}

static int64_t now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* One more call on @sock may take what is left until @end. Each byte that comes would begin another limit otherwise. */
static bool limit_until(int sock, int which, int64_t end)
{
	int64_t left = end - now_us();
	struct timeval limit = { .tv_sec = left / 1000000, .tv_usec = left % 1000000 };

	return left > 0 && !setsockopt(sock, SOL_SOCKET, which, &limit, sizeof(limit));
}

/* The request up to its empty line, of which the first is what counts. false: there is none */
static bool request_read(int sock, char *text)
{
	int64_t end = now_us() + SECONDS * 1000000;
	size_t got = 0;
	ssize_t n;

	do {
		n = !limit_until(sock, SO_RCVTIMEO, end) ? -1 : recv(sock, text + got, REQUEST_MAX - 1 - got, 0);
		if (n <= 0)
			return false;
		got += (size_t)n;
		text[got] = 0;
	} while (!strstr(text, "\r\n\r\n") && !strstr(text, "\n\n") && got < REQUEST_MAX - 1);
	return got < REQUEST_MAX - 1;
}

static void answer(int sock, const char *status, const char *type, const char *body, size_t bytes, bool head)
{
	char text[256];
	int64_t end = now_us() + SECONDS * 1000000;
	int n = snprintf(text, sizeof(text), "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
			 "Connection: close\r\n\r\n", status, type, bytes);

	if (!limit_until(sock, SO_SNDTIMEO, end) || send(sock, text, (size_t)n, MSG_NOSIGNAL) != n || head)
		return;
	while (bytes && limit_until(sock, SO_SNDTIMEO, end)) {
		ssize_t sent = send(sock, body, bytes, MSG_NOSIGNAL);

		if (sent <= 0)
			return;
		body += sent;
		bytes -= (size_t)sent;
	}
}

static void answer_text(int sock, const char *status, const char *text, bool head)
{
	answer(sock, status, "text/plain; charset=utf-8", text, strlen(text), head);
}

static void answer_metrics(const struct ctl *c, int sock, bool head)
{
	char *body = NULL;
	size_t bytes = 0;
	FILE *to = open_memstream(&body, &bytes);
	int status = to ? metrics_put(c, to) : CTL_FAILED;

	if (to && fclose(to))
		status = CTL_FAILED;
	if (status)
		answer_text(sock, "503 Service Unavailable", "nobody answers for pools; the exporter's log says why\n", head);
	else
		answer(sock, "200 OK", "text/plain; version=0.0.4; charset=utf-8", body, bytes, head);
	free(body);
}

static void serve(const struct ctl *c, int sock)
{
	char text[REQUEST_MAX], method[8], path[32];
	bool head;

	if (!request_read(sock, text))
		return;
	if (sscanf(text, "%7s %31[^ ?\r\n]", method, path) != 2) {
		answer_text(sock, "400 Bad Request", "no HTTP\n", false);
		return;
	}
	head = !strcmp(method, "HEAD");
	if (!head && strcmp(method, "GET"))
		answer_text(sock, "405 Method Not Allowed", "GET, HEAD\n", false);
	else if (!strcmp(path, "/metrics"))
		answer_metrics(c, sock, head);
	else if (!strcmp(path, "/"))
		answer_text(sock, "200 OK", "/metrics\n", head);
	else
		answer_text(sock, "404 Not Found", "/metrics\n", head);
}

/* Until a signal comes, which one hears of on @signals */
static void serve_all(const struct ctl *c, int fd, int signals)
{
	struct pollfd p[] = { { .fd = signals, .events = POLLIN }, { .fd = fd, .events = POLLIN } };
	int sock;

	while (poll(p, 2, -1) >= 0 || errno == EINTR) {
		if (p[0].revents)
			return;
		sock = p[1].revents ? accept4(fd, NULL, NULL, SOCK_CLOEXEC) : -1;
		if (sock < 0)
			continue;
		serve(c, sock);
		close(sock);
	}
}

int cmd_exporter(struct ctl *c)
{
	const char *where = c->opt[OPT_LISTEN].set ? c->opt[OPT_LISTEN].text : WHERE;
	bool path = strchr(where, '/');
	int fd, signals;
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signals = signalfd(-1, &set, SFD_CLOEXEC);
	fd = path ? listen_unix(where) : listen_port(where);
	if (fd < 0)
		return CTL_FAILED;
	printf("Listening on %s.\n", where);
	fflush(stdout);
	serve_all(c, fd, signals);
	if (path)
		unlink(where);
	close(fd);
	close(signals);
	return CTL_OK;
}
