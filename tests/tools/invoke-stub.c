/* invoke-stub: answers every InvokeEndpoint at once, so that what is left is the client's own cost.
 *
 *   cc -O2 -pthread -o invoke-stub invoke-stub.c
 *   invoke-stub [-p PORT] [-d MICROSECONDS] [-b BODY]
 *
 * Prints http://127.0.0.1:PORT once it listens. Any POST is answered 200 with BODY (an OpenAI chat completion), after
 * the delay; GET gives {"connections": n, "requests": n} so far, this one not counted, which shows whether a client
 * keeps its connection. A thread per connection; HTTP/1.1 with Content-Length bodies only. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

static const char *body = "{\"id\":\"c\",\"object\":\"chat.completion\",\"created\":0,\"model\":\"m\",\"choices\":[{\"index\":0,"
	"\"message\":{\"role\":\"assistant\",\"content\":\"ok\"},\"finish_reason\":\"stop\"}],"
	"\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1,\"total_tokens\":2}}";
static unsigned delay;
static atomic_long connections, requests;

static const char *field(const char *head, const char *name)
{
	size_t n = strlen(name);
	for (const char *p = strstr(head, "\r\n"); p; p = strstr(p + 2, "\r\n"))
		if (!strncasecmp(p + 2, name, n) && p[2 + n] == ':') return p + 3 + n;
	return NULL;
}

static int reply(int fd, const char *text)
{
	char out[8192];
	int n = snprintf(out, sizeof out, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
		"x-Amzn-Invoked-Production-Variant: AllTraffic\r\n\r\n%s", strlen(text), text);
	return write(fd, out, (size_t)n) == n;
}

static void *serve(void *arg)
{
	int fd = (int)(long)arg, one = 1;
	static _Thread_local char in[1 << 16];
	size_t have = 0;
	char stats[96];
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	connections++;
	for (;;) {
		char *end;
		in[have] = 0;
		while (!(end = strstr(in, "\r\n\r\n"))) {
			ssize_t n = have < sizeof in - 1 ? read(fd, in + have, sizeof in - 1 - have) : 0;
			if (n <= 0) goto done;
			in[have += (size_t)n] = 0;
		}
		size_t head = (size_t)(end + 4 - in);
		end[2] = 0;
		const char *length = field(in, "content-length");
		size_t left = length ? strtoul(length, NULL, 10) : 0, got = have - head < left ? have - head : left;
		if (field(in, "expect") && write(fd, "HTTP/1.1 100 Continue\r\n\r\n", 25) != 25) break;
		int get = !strncmp(in, "GET ", 4);
		memmove(in, in + head + got, have -= head + got);
		for (left -= got; left;) {                  /* a body longer than the buffer is read past */
			ssize_t n = read(fd, in, left < sizeof in - 1 ? left : sizeof in - 1);
			if (n <= 0) goto done;
			left -= (size_t)n;
		}
		if (!get && delay) nanosleep(&(struct timespec){.tv_sec = delay / 1000000, .tv_nsec = (long)(delay % 1000000) * 1000}, NULL);
		snprintf(stats, sizeof stats, "{\"connections\": %ld, \"requests\": %ld}\n", connections - 1, (long)requests);
		if (!reply(fd, get ? stats : body)) break;
		if (get) connections--; else requests++;
	}
done:
	close(fd);
	return NULL;
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof a;
	int one = 1, c, s = socket(AF_INET, SOCK_STREAM, 0);
	while ((c = getopt(argc, argv, "p:d:b:")) != -1)
		if (c == 'p') a.sin_port = htons((uint16_t)atoi(optarg));
		else if (c == 'd') delay = (unsigned)atoi(optarg);
		else if (c == 'b') body = optarg;
		else return fprintf(stderr, "usage: %s [-p PORT] [-d MICROSECONDS] [-b BODY]\n", argv[0]), 64;
	setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(s, (void *)&a, sizeof a) || listen(s, 1024) || getsockname(s, (void *)&a, &len)) return perror("invoke-stub"), 69;
	printf("http://127.0.0.1:%d\n", ntohs(a.sin_port));
	fflush(stdout);
	for (;;) {
		pthread_t t;
		int fd = accept(s, NULL, NULL);
		if (fd >= 0 && !pthread_create(&t, NULL, serve, (void *)(long)fd)) pthread_detach(t);
	}
}
