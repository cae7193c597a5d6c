/* st-gate JUDGE:NAME OTHER:NAME: how far logits [positions, vocabulary] are from those that judge them, as one JSON object: positions; flips, where the largest logit is
 * another; largest_gap, the largest difference between the judge's two best logits at a flip; mean_kl and max_kl, of softmax(judge) from softmax(other); max_diff.
 *
 * Reads F32, mapped.  A judge of the programs, so it shares no code with them.  Exit 0, or 1 with a message when the tensors cannot be compared.
 */
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

struct logits { const float *row; size_t rows, width; };

static _Noreturn void stop(const char *what, const char *why)
{
    fprintf(stderr, "st-gate: %s: %s\n", what, why);
    exit(1);
}

/* "file.safetensors:logits.1"; the file stays mapped. */
static struct logits load(const char *arg)
{
    const char *colon = strchr(arg, ':');
    struct stat st;
    if (!colon)
        stop(arg, "expected FILE:NAME");
    char *path = strndup(arg, (size_t)(colon - arg));
    int fd = open(path, O_RDONLY);
    if (fd < 0 || fstat(fd, &st))
        stop(path, "cannot be opened");
    const unsigned char *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED)
        stop(path, "cannot be mapped");
    uint64_t n;
    memcpy(&n, map, 8);
    json_t *header = json_loadb((const char *)map + 8, n, 0, NULL), *entry = json_object_get(header, colon + 1), *shape = json_object_get(entry, "shape");
    if (json_array_size(shape) != 2 || strcmp(json_string_value(json_object_get(entry, "dtype")), "F32"))
        stop(arg, "no F32 tensor of two dimensions");
    const long begin = (long)json_integer_value(json_array_get(json_object_get(entry, "data_offsets"), 0));
    struct logits l = {(const float *)(const void *)(map + 8 + n + begin), (size_t)json_integer_value(json_array_get(shape, 0)), (size_t)json_integer_value(json_array_get(shape, 1))};
    json_decref(header);
    free(path);
    return l;
}

static size_t best(const float *x, size_t n, float *gap)
{
    size_t at = 0;
    float second = -INFINITY;
    for (size_t i = 1; i < n; i++) {
        if (x[i] > x[at])
            second = x[at], at = i;
        else if (x[i] > second)
            second = x[i];
    }
    *gap = x[at] - second;
    return at;
}

static double log_sum(const float *x, size_t n, float max)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += exp((double)x[i] - (double)max);
    return (double)max + log(sum);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        stop("usage", "st-gate JUDGE:NAME OTHER:NAME");
    const struct logits judge = load(argv[1]), other = load(argv[2]);
    if (judge.rows != other.rows || judge.width != other.width)
        stop(argv[2], "has another shape");
    const size_t n = judge.width;
    size_t flips = 0;
    double largest_gap = 0, sum_kl = 0, max_kl = 0, max_diff = 0;
    for (size_t r = 0; r < judge.rows; r++) {
        const float *a = judge.row + r * n, *b = other.row + r * n;
        float gap, unused;
        const size_t ia = best(a, n, &gap), ib = best(b, n, &unused);
        const double la = log_sum(a, n, a[ia]), lb = log_sum(b, n, b[ib]);
        double kl = 0;
        for (size_t i = 0; i < n; i++) {
            const double d = fabs((double)a[i] - (double)b[i]);
            if (!(d <= max_diff))
                max_diff = d;
            kl += exp((double)a[i] - la) * (((double)a[i] - la) - ((double)b[i] - lb));
        }
        sum_kl += kl;
        max_kl = kl > max_kl ? kl : max_kl;
        flips += ia != ib;
        if (ia != ib && (double)gap > largest_gap)
            largest_gap = (double)gap;
    }
    printf("{\"positions\": %zu, \"flips\": %zu, \"largest_gap\": %.6g, \"mean_kl\": %.4g, \"max_kl\": %.4g, \"max_diff\": %.4g}\n", judge.rows, flips, largest_gap,
        judge.rows ? sum_kl / (double)judge.rows : 0, max_kl, max_diff);
    return 0;
}
