/* SHA-256 by OpenSSL (EVP), and what becomes of a program when libcrypto refuses. */
#ifndef BASE_HASH_H
#define BASE_HASH_H
#include <stddef.h>

#define SHA256_HEX 65                   /* 64 digits and a NUL */
/* Before the first use of OpenSSL, also by a library (libcurl): when memory runs out in it, the program ends (75).  Any number of times. */
void hash_begin(void);
struct sha256;
struct sha256 *sha256_new(void);
void sha256_add(struct sha256 *s, const void *p, size_t n);
void sha256_hex(struct sha256 *s, char hex[SHA256_HEX]);        /* finishes and frees s */
void sha256_of(const void *p, size_t n, char hex[SHA256_HEX]);
/* What libcrypto did not give: ends the program, 75 where memory was short, 69 where its configuration does not allow it. */
_Noreturn void crypto_refused(const char *what);
#endif
