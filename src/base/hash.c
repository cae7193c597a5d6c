#include "base/hash.h"

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include "base/err.h"

struct sha256 { EVP_MD_CTX *ctx; };

/* OpenSSL 3.0 follows a null pointer when memory runs out while it sets itself up: let it die as we do. */
static void *ossl_malloc(size_t n, const char *file, int line)
{
    (void)file, (void)line;
    return xmalloc(n);
}

static void *ossl_realloc(void *p, size_t n, const char *file, int line)
{
    (void)file, (void)line;
    return xreallocarray(p, n, 1);
}

static void ossl_free(void *p, const char *file, int line)
{
    (void)file, (void)line;
    free(p);
}

static EVP_MD *sha256_md;               /* fetched once: a search for each hash costs more than a short one */

/* Without effect where somebody else has used OpenSSL before.  Its atexit handler would wait for the lock under which
 * the allocation that died was made; the process' end frees as well. */
static void set_up(void)
{
    (void)CRYPTO_set_mem_functions(ossl_malloc, ossl_realloc, ossl_free);
    (void)OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
    sha256_md = EVP_MD_fetch(NULL, "SHA256", NULL);
}

void crypto_refused(const char *what)
{
    unsigned long why = ERR_peek_last_error();
    bool memory = why == 0 || ERR_GET_REASON(why) == ERR_R_MALLOC_FAILURE;
    die_msg(memory ? EXIT_TEMPFAIL : EXIT_UNAVAILABLE, "libcrypto gives no %s: out of memory, or openssl.cnf does not allow it: free some, or set OPENSSL_CONF", what);
}

void hash_begin(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, set_up);
}

static void check(int ok)
{
    if (ok != 1)
        crypto_refused("SHA-256");
}

struct sha256 *sha256_new(void)
{
    hash_begin();
    struct sha256 *s = xmalloc(sizeof *s);
    s->ctx = EVP_MD_CTX_new();
    check(s->ctx != NULL);
    check(EVP_DigestInit_ex(s->ctx, sha256_md, NULL));
    return s;
}

void sha256_add(struct sha256 *s, const void *p, size_t n)
{
    check(EVP_DigestUpdate(s->ctx, p, n));
}

void sha256_hex(struct sha256 *s, char hex[SHA256_HEX])
{
    static const char digit[] = "0123456789abcdef";
    unsigned char md[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    check(EVP_DigestFinal_ex(s->ctx, md, &n));
    for (unsigned i = 0; i < n; i++) {
        hex[2 * i] = digit[md[i] >> 4];
        hex[2 * i + 1] = digit[md[i] & 15];
    }
    hex[2 * n] = 0;
    EVP_MD_CTX_free(s->ctx);
    free(s);
}

void sha256_of(const void *p, size_t n, char hex[SHA256_HEX])
{
    struct sha256 *s = sha256_new();
    sha256_add(s, p, n);
    sha256_hex(s, hex);
}
