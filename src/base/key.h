/* An API key from its file.
 *
 * Owns: what such a file may hold (one line, white space around it is dropped), and that the key is found in no core file: once one is read, this program leaves none.
 */
#ifndef BASE_KEY_H
#define BASE_KEY_H
#include "base/err.h"

/* The key; EXIT_DATA when the file holds none.  Freed by key_free(), which wipes it. */
char *key_read(const char *path, struct err *e) MUST_CHECK;
void key_free(char *key);       /* NULL is fine */
#endif
