/* A disk that fails: the n-th system call on files below a folder returns an error.

   cc -shared -fPIC -o faults.so faults.c -ldl; LD_PRELOAD=./faults.so python ...
   Nothing fails until faults_arm() is called. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static char folder[4096];
static int last = 0, lasting = 0, count = 0, code = EIO;
static char failed[64];

/* Let call number `nth` fail, and with `on` all that follow; 0 for none. */
void faults_arm(const char *path, int nth, int on, int number) {
    strncpy(folder, path, sizeof folder - 1);
    last = nth, lasting = on, code = number, count = 0, failed[0] = 0;
}

int faults_count(void) { return count; }

const char *faults_failed(void) { return failed; }

static int fails(const char *call, const char *path) {
    if (!last || strncmp(path, folder, strlen(folder)))
        return 0;
    /* Nothing but an error text needs what is in a lock. */
    if ((!strcmp(call, "write") || !strcmp(call, "ftruncate")) && strstr(path, ".lock"))
        return 0;
    count++;
    if (count < last || (count > last && !lasting))
        return 0;
    if (!failed[0])
        strncpy(failed, call, sizeof failed - 1);
    return 1;
}

static int fails_at(const char *call, int fd) {
    char link[64], path[4096];
    ssize_t length;
    int before = errno;
    if (!last)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, path, sizeof path - 1);
    errno = before;
    if (length < 0)
        return 0;
    path[length] = 0;
    return fails(call, path);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define REFUSE return errno = code, -1

#define OPEN(name)                                                     \
    int name(const char *path, int flags, ...) {                       \
        va_list rest;                                                  \
        mode_t mode;                                                   \
        va_start(rest, flags);                                         \
        mode = va_arg(rest, mode_t);                                   \
        va_end(rest);                                                  \
        if (fails("open", path))                                       \
            REFUSE;                                                    \
        return REAL(name)(path, flags, mode);                          \
    }
OPEN(open)
OPEN(open64)

/* What close() reports is what could not be written: of a file to be read it never fails. */
int close(int fd) {
    int bad = (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY && fails_at("close", fd);
    int result = REAL(close)(fd);
    if (bad)
        REFUSE;
    return result;
}

#define ON_FILE(type, name, call, arguments, passed)                   \
    type name arguments {                                              \
        if (fails_at(call, fd))                                        \
            REFUSE;                                                    \
        return REAL(name) passed;                                      \
    }
ON_FILE(ssize_t, read, "read", (int fd, void *data, size_t n), (fd, data, n))
ON_FILE(ssize_t, pread, "read", (int fd, void *data, size_t n, off_t at), (fd, data, n, at))
ON_FILE(ssize_t, pread64, "read", (int fd, void *data, size_t n, off64_t at), (fd, data, n, at))
ON_FILE(ssize_t, preadv64, "read", (int fd, const struct iovec *v, int n, off64_t at),
        (fd, v, n, at))
ON_FILE(ssize_t, write, "write", (int fd, const void *data, size_t n), (fd, data, n))
ON_FILE(ssize_t, pwrite, "write", (int fd, const void *data, size_t n, off_t at),
        (fd, data, n, at))
ON_FILE(ssize_t, pwrite64, "write", (int fd, const void *data, size_t n, off64_t at),
        (fd, data, n, at))
ON_FILE(ssize_t, pwritev64, "write", (int fd, const struct iovec *v, int n, off64_t at),
        (fd, v, n, at))
ON_FILE(ssize_t, preadv64v2, "read", (int fd, const struct iovec *v, int n, off64_t at, int f),
        (fd, v, n, at, f))
ON_FILE(ssize_t, pwritev64v2, "write", (int fd, const struct iovec *v, int n, off64_t at, int f),
        (fd, v, n, at, f))
ON_FILE(int, fsync, "fsync", (int fd), (fd))
ON_FILE(int, ftruncate, "ftruncate", (int fd, off_t n), (fd, n))
ON_FILE(int, ftruncate64, "ftruncate", (int fd, off64_t n), (fd, n))
ON_FILE(int, fallocate, "fallocate", (int fd, int mode, off_t at, off_t n), (fd, mode, at, n))

int rename(const char *old, const char *new) {
    if (fails("rename", old))
        REFUSE;
    return REAL(rename)(old, new);
}

int unlink(const char *path) {
    if (fails("unlink", path))
        REFUSE;
    return REAL(unlink)(path);
}
