/* The server's log on stderr, in the form of vLLM's, so that one reader of logs understands both.  Silent with -q. */
#ifndef SERVE_LOG_H
#define SERVE_LOG_H
#include "base/err.h"

/* "(APIServer pid=N) INFO MM-DD HH:MM:SS [gpu-serve] text" */
void serve_log(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* "(APIServer pid=N) INFO:     text": lines of the HTTP side */
void serve_log_http(const char *fmt, ...) PRINTF_LIKE(1, 2);
#endif
