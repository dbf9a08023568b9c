/* Calls that an emulator or a debugger answers: files, text, leaving. On a device without either,
 * put the device's own input and output in their place. May be used under any licence. */
#ifndef SEMIHOSTING_H
#define SEMIHOSTING_H

#include <stddef.h>
#include <stdint.h>

enum { SYS_OPEN = 0x01, SYS_CLOSE = 0x02, SYS_WRITE0 = 0x04, SYS_WRITE = 0x05, SYS_READ = 0x06 };
enum { SYS_FLEN = 0x0C };
enum { SYS_EXIT_EXTENDED = 0x20, APPLICATION_EXIT = 0x20026 };
enum { READ_BINARY = 1, WRITE_BINARY = 5 };

static inline int32_t asked(uint32_t number, const void *words) {
    register uint32_t r0 __asm("r0") = number;
    register const void *r1 __asm("r1") = words;
    __asm volatile("bkpt 0xAB" : "+r"(r0) : "r"(r1) : "memory");
    return (int32_t)r0;
}

static inline void say(const char *text) { asked(SYS_WRITE0, text); }

static inline void leave(int status) {
    const uint32_t words[] = {APPLICATION_EXIT, (uint32_t)status};
    asked(SYS_EXIT_EXTENDED, words);
    for (;;) {}
}

/* A handle, or a negative number. */
static inline int32_t opened(const char *name, size_t length, uint32_t mode) {
    const uint32_t words[] = {(uint32_t)(uintptr_t)name, mode, length};
    return asked(SYS_OPEN, words);
}

/* How many bytes were not read, or not written. */
static inline uint32_t moved(uint32_t call, int32_t handle, const void *bytes, size_t count) {
    const uint32_t words[] = {(uint32_t)handle, (uint32_t)(uintptr_t)bytes, count};
    return (uint32_t)asked(call, words);
}

#endif
