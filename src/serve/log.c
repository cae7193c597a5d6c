#include "serve/log.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

static void line(const char *head, const char *fmt, va_list ap)
{
    char text[2048];
    if (prog_verbosity < 0) return;
    vsnprintf(text, sizeof text, fmt, ap);
    for (char *p = text; *p; p++)
        if ((unsigned char)*p < ' ') *p = ' ';          /* a path is the client's: it must not make lines of its own */
    fprintf(stderr, "(APIServer pid=%ld) %s%s\n", (long)getpid(), head, text);
}

void serve_log(const char *fmt, ...)
{
    char head[64];
    struct tm tm;
    va_list ap;
    localtime_r(&(time_t){time(NULL)}, &tm);
    strftime(head, sizeof head, "INFO %m-%d %H:%M:%S [gpu-serve] ", &tm);
    va_start(ap, fmt);
    line(head, fmt, ap);
    va_end(ap);
}

void serve_log_http(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    line("INFO:     ", fmt, ap);
    va_end(ap);
}
