/* Wakes a Cortex-M4F: floating point on, memory laid out, then main.
 * May be used under any licence. */
#include <stdint.h>

#include "semihosting.h"

extern uint32_t data_in_flash, data_begin, data_end, bss_begin, bss_end, stack_end;
int main(void);
void reset(void);

#define ACCESS_CONTROL (*(volatile uint32_t *)0xE000ED88u) /* CPACR */

static void failed(void) {
    say("fault\n");
    leave(1);
}

/* In its own function, so that nothing of it is done before floating point is on. */
__attribute__((noinline)) static void started(void) { leave(main()); }

void reset(void) {
    ACCESS_CONTROL |= 0xFu << 20; /* coprocessors 10 and 11: the floating-point unit */
    __asm volatile("dsb\n isb" ::: "memory");
    const uint32_t *from = &data_in_flash;
    for (uint32_t *to = &data_begin; to < &data_end;) *to++ = *from++;
    for (uint32_t *to = &bss_begin; to < &bss_end;) *to++ = 0;
    started();
}

typedef union {
    void *stack;
    void (*handler)(void);
} vector;

/* The stack's end, reset, NMI, and the four kinds of fault. */
__attribute__((section(".vectors"), used)) static const vector vectors[] = {
    {.stack = &stack_end}, {.handler = reset}, {.handler = failed}, {.handler = failed},
    {.handler = failed}, {.handler = failed}, {.handler = failed},
};
