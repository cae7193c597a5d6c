#include "base/key.h"
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>
#include "base/io.h"

#define KEY_MAX 4096

char *key_read(const char *path, struct err *e)
{
    char *key;
    size_t n;
    prog_no_core();
    if (io_slurp(path, KEY_MAX, &key, &n, e)) return NULL;
    while (n && strchr("\r\n\t ", key[n - 1])) key[--n] = 0;
    if (n && strlen(key) == n && !strpbrk(key, "\r\n")) return key;
    err_set(e, EXIT_DATA, "%s: holds no API key: one line is expected", path);
    free(key);
    return NULL;
}

void key_free(char *key)
{
    if (key) OPENSSL_cleanse(key, strlen(key));
    free(key);
}
