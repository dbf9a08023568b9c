/* Inputs from the file `inputs`, outputs to the file `outputs`, and how many instructions one
 * inference takes. A model of recordings also reads one from the file `recording`, frames of
 * TRELLIS_FRAME numbers, if there is such a file. May be used under any licence.
 *
 * Under qemu's `-icount shift=0` every instruction takes one nanosecond of the machine's time, so
 * its SysTick timer counts instructions. How many there are to a tick is measured, on a loop whose
 * instructions are known.
 */
#include "model.h"
#include "semihosting.h"

#define TICK_CONTROL (*(volatile uint32_t *)0xE000E010u)
#define TICK_RELOAD (*(volatile uint32_t *)0xE000E014u)
#define TICK_VALUE (*(volatile uint32_t *)0xE000E018u)
#define TICK_BITS 0xFFFFFFu
#define LOOPS 1000000u

/* What model.h says of its memory is what it takes: behind scratch lie words that must not change. */
static struct {
    float scratch[TRELLIS_SCRATCH];
    uint32_t guard[4];
} memory;
static float output[TRELLIS_OUTPUTS];
static float *const scratch = memory.scratch;
_Static_assert(sizeof memory.scratch + sizeof output == TRELLIS_RAM, "the peak of RAM");
#define GUARD 0x5AFE5AFEu
static uint32_t known; /* ticks of the loop */

static uint32_t now(void) { return TICK_VALUE; } /* counts down */

/* Two instructions a turn. */
static uint32_t ticks_of_loop(uint32_t turns) {
    const uint32_t began = now();
    __asm volatile("1: subs %0, %0, #1\n bne 1b" : "+r"(turns)::"cc");
    return (began - now()) & TICK_BITS;
}

static void say_number(const char *name, uint32_t value) {
    char text[12] = {0};
    char *at = text + 10;
    *at = '\n';
    do *--at = (char)('0' + value % 10);
    while (value /= 10);
    say(name);
    say(" ");
    say(at);
}

static uint32_t instructions(uint64_t ticks) { return (uint32_t)(ticks * (2 * LOOPS) / known); }

static void guard(void) {
    for (int i = 0; i < 4; i++) memory.guard[i] = GUARD;
}

static int guarded(void) {
    for (int i = 0; i < 4; i++)
        if (memory.guard[i] != GUARD) return 0;
    return 1;
}

/* The network alone, on inputs that somebody prepared. */
static int on_inputs(int32_t from, int32_t to) {
    uint32_t count = 0;
    uint64_t ticks = 0;
    while (moved(SYS_READ, from, scratch, TRELLIS_INPUTS * sizeof *scratch) == 0) {
        const uint32_t began = now();
        if (trellis_run(scratch, output, scratch) != 0) return 3;
        ticks += (began - now()) & TICK_BITS;
        if (!guarded()) return 8;
        if (moved(SYS_WRITE, to, output, sizeof output) != 0) return 4;
        count++;
    }
    say_number("inferences", count);
    say_number("ram", TRELLIS_RAM);
    if (count) say_number("instructions", instructions(ticks) / count);
    return 0;
}

#ifdef TRELLIS_FRAME
/* Bytes that stay free for the stack: calls, and what the cosine transform works in. */
#define STACK (2048u + TRELLIS_CHUNKS * 3u * sizeof(float))

/* From frames to outputs. */
static int on_recording(int32_t from, int32_t to) {
    extern float bss_end; /* the linker's: memory is free from here on, up to the stack */
    float *recording = &bss_end;
    const uintptr_t stack = (uintptr_t)__builtin_frame_address(0) - STACK;
    const int32_t length = asked(SYS_FLEN, &from);
    const uint32_t frames = (uint32_t)length / (TRELLIS_FRAME * sizeof *recording);
    const size_t size = frames * TRELLIS_FRAME * sizeof *recording;
    if (length < 0) return 5;
    if (stack < (uintptr_t)recording || size > stack - (uintptr_t)recording) {
        say("the recording is larger than the memory that is free\n");
        return 7;
    }
    if (moved(SYS_READ, from, recording, size) != 0) return 5;
    const uint32_t began = now();
    if (trellis_input(recording, frames, scratch) != 0) return 6;
    const uint32_t ticks = (began - now()) & TICK_BITS;
    if (trellis_run(scratch, output, scratch) != 0) return 3;
    say_number("frames", frames);
    say_number("preparation", instructions(ticks));
    return moved(SYS_WRITE, to, output, sizeof output) == 0 ? 0 : 4;
}
#endif

int main(void) {
    guard();
    TICK_RELOAD = TICK_BITS;
    TICK_VALUE = 0;
    TICK_CONTROL = 5; /* on, by the processor's clock, without interrupts */
    known = ticks_of_loop(LOOPS);
    const int32_t to = opened("outputs", 7, WRITE_BINARY);
    int32_t from = opened("inputs", 6, READ_BINARY);
    int status = to < 0 ? 2 : 0, found = 0;
    if (status == 0 && from >= 0) {
        status = on_inputs(from, to);
        found = 1;
    }
#ifdef TRELLIS_FRAME
    from = opened("recording", 9, READ_BINARY);
    if (status == 0 && from >= 0) {
        status = on_recording(from, to);
        found = 1;
    }
#endif
    asked(SYS_CLOSE, &to);
    return found ? status : 2;
}
