/* Arrays of float32 or int64 as .npy files, in C order, as NumPy and gpt2np write and read them. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Writes an array of the given shape; kind is "<f4" or "<i8". */
static void npy_write(const char *folder, const char *name, const char *kind, const void *data,
                      int dims, const int *shape) {
    char path[4096], header[128], sizes[96] = "";
    size_t count = 1;
    for (int i = 0; i < dims; i++) {
        sprintf(sizes + strlen(sizes), "%d,", shape[i]);
        count *= (size_t)shape[i];
    }
    /* Ten bytes come before the header; all of it is filled up to a multiple of 64. */
    int length = snprintf(header, sizeof header,
                          "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", kind, sizes);
    int padded = (10 + length + 1 + 63) / 64 * 64 - 10;
    snprintf(path, sizeof path, "%s/%s.npy", folder, name);
    FILE *file = fopen(path, "wb");
    if (!file) { perror(path); exit(2); }
    fwrite("\x93NUMPY\x01\x00", 1, 8, file);
    fputc(padded % 256, file);
    fputc(padded / 256, file);
    fprintf(file, "%-*s\n", padded - 1, header);
    fwrite(data, kind[2] - '0', count, file);
    fclose(file);
}

/* Reads an array, and gives its shape and how many bytes an element has; NULL without the file. */
static void *npy_read(const char *folder, const char *name, int *dims, int *shape, int *width) {
    char path[4096], header[4096] = "";
    unsigned char start[10];
    snprintf(path, sizeof path, "%s/%s.npy", folder, name);
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    if (fread(start, 1, 10, file) != 10) exit(2);
    size_t length = start[8] + 256u * start[9], count = 1;
    if (length >= sizeof header || fread(header, 1, length, file) != length) exit(2);
    if (strstr(header, "True")) { fprintf(stderr, "%s: Fortran order\n", path); exit(2); }
    *width = strstr(header, "'descr': '")[12] - '0';
    *dims = 0;
    for (char *at = strchr(header, '(') + 1, *end; *at != ')'; at = end + (*end == ',') + (end[1] == ' ')) {
        shape[*dims] = (int)strtol(at, &end, 10);
        if (end == at) break;
        count *= (size_t)shape[(*dims)++];
    }
    void *data = malloc(count * *width + 1);
    if (fread(data, *width, count, file) != count) exit(2);
    fclose(file);
    return data;
}
