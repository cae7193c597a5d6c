#include "base/hash.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include "base/err.h"

struct sha256 { EVP_MD_CTX *ctx; };

static void check(int ok)
{
    if (ok != 1)
        die_msg(EXIT_BUG, "SHA-256 is not available in this OpenSSL");
}

struct sha256 *sha256_new(void)
{
    struct sha256 *s = xmalloc(sizeof *s);
    s->ctx = EVP_MD_CTX_new();
    if (!s->ctx)
        die_msg(EXIT_TEMPFAIL, "out of memory");
    check(EVP_DigestInit_ex(s->ctx, EVP_sha256(), NULL));
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
