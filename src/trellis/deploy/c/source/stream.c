/* Gestures in a stream of frames; see stream.h. stream.py of Trellis is the same in Python.
 * Generated and run-time code of Trellis may be used under any licence. */
#include "stream.h"

#include <string.h>

static const uint32_t windows[TRELLIS_WINDOWS] = {@WINDOWS@};

/* e^x for x from -infinity to 0, to single precision, without the maths library. */
static float power_of_e(float x) {
    if (!(x > -87.0f)) return 0.0f;
    const int n = (int)(x * 1.44269504f - 0.5f);
    const float r = (x - (float)n * 0.693359375f) + (float)n * 2.12194440e-4f;
    float y = 1.9875691500e-4f;
    y = y * r + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    y = y * r * r + r + 1.0f;
    const uint32_t bits = (uint32_t)(n + 127) << 23;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return y * scale;
}

void trellis_stream_begin(trellis_stream *s) {
    memset(s, 0, sizeof *s);
    s->active = s->candidate = s->ended_label = -1;
}

/* The sums before frame t of the window that began `back` rows ago. */
static const uint32_t *row(const trellis_stream *s, uint32_t back, uint32_t t) {
    const uint32_t place = s->at + TRELLIS_RING - back + t;
    return s->sums[place % TRELLIS_RING];
}

/* The means of the frames from first to stop, as differences of sums that may have wrapped. */
static void mean(const uint32_t *first, const uint32_t *stop, uint32_t count, float *to) {
    const float share = TRELLIS_UNIT / (float)count;
    for (uint32_t i = 0; i < TRELLIS_FRAME; i++) {
        const uint32_t units = stop[i] - first[i];
        to[i] = (units >> 31 ? -(float)(0u - units) : (float)units) * share;
    }
}

/* A window of frames as a recording of TRELLIS_CHUNKS frames; chunk.h has the same rule. */
static void chunk(trellis_stream *s, uint32_t frames) {
    const uint32_t chunks = TRELLIS_CHUNKS;
    float *to = s->means;
    for (uint32_t m = 0; m < chunks; m++, to += TRELLIS_FRAME) {
        const uint32_t start = (m * frames + chunks - 1) / chunks;
        const uint32_t stop = ((m + 1) * frames + chunks - 1) / chunks;
        if (start < stop) {
            mean(row(s, frames, start), row(s, frames, stop), stop - start, to);
            continue;
        }
        const uint32_t centre = (2 * m + 1) * frames, before = centre / (2 * chunks);
        const uint32_t after = before + 1 < frames ? before + 1 : before;
        const float weight = (float)(centre % (2 * chunks)) / (float)(2 * chunks);
        float next[TRELLIS_FRAME];
        mean(row(s, frames, before), row(s, frames, before + 1), 1, to);
        mean(row(s, frames, after), row(s, frames, after + 1), 1, next);
        for (uint32_t i = 0; i < TRELLIS_FRAME; i++) to[i] += weight * (next[i] - to[i]);
    }
}

/* The probabilities, averaged over the windows that are full. */
static void evaluate(trellis_stream *s) {
    uint32_t ready = 0;
    for (uint32_t i = 0; i < TRELLIS_OUTPUTS; i++) s->shares[i] = 0.0f;
    for (uint32_t w = 0; w < TRELLIS_WINDOWS && windows[w] <= s->seen; w++) {
        float most, sum = 0.0f;
        chunk(s, windows[w]);
        if (trellis_input(s->means, TRELLIS_CHUNKS, s->scratch) != 0) continue;
        if (trellis_run(s->scratch, s->output, s->scratch) != 0) continue;
        ready++;
        most = s->output[0];
        for (uint32_t i = 1; i < TRELLIS_OUTPUTS; i++)
            if (s->output[i] > most) most = s->output[i];
        for (uint32_t i = 0; i < TRELLIS_OUTPUTS; i++)
            sum += s->output[i] = power_of_e(s->output[i] - most);
        for (uint32_t i = 0; i < TRELLIS_OUTPUTS; i++) s->shares[i] += s->output[i] / sum;
    }
    s->evaluated = ready > 0;
    if (ready > 1)
        for (uint32_t i = 0; i < TRELLIS_OUTPUTS; i++) s->shares[i] /= (float)ready;
}

static int finished(trellis_stream *s, uint32_t now, trellis_event *event) {
    const uint32_t end = s->last > TRELLIS_LAG ? s->last - TRELLIS_LAG : 0;
    event->label = s->active;
    event->start = s->start;
    event->end = end > s->start ? end : s->start;
    event->probability = s->peak;
    s->ended = now;
    s->ended_label = s->active;
    s->next = event->end + 1;
    s->active = -1;
    s->below = 0;
    return 1;
}

static void begin(trellis_stream *s, uint32_t now, float share) {
    const uint32_t start = s->first > TRELLIS_LAG ? s->first - TRELLIS_LAG : 0;
    s->active = s->candidate;
    s->start = start > s->next ? start : s->next;
    s->last = now;
    s->below = 0;
    s->peak = share;
    s->candidate = -1;
    s->count = 0;
}

static int decide(trellis_stream *s, uint32_t now, trellis_event *event) {
    int best = -1, found = 0;
    for (int i = 0; s->evaluated && i < TRELLIS_OUTPUTS; i++)
        if (i != TRELLIS_NOTHING && (best < 0 || s->shares[i] > s->shares[best])) best = i;
    const int sure = best >= 0 && s->shares[best] >= TRELLIS_THRESHOLD;
    if (!sure || best == s->active) {
        s->candidate = -1;
        s->count = 0;
    } else if (best != s->candidate) {
        s->candidate = best;
        s->count = 1;
        s->first = now;
    } else {
        s->count++;
    }
    if (s->active >= 0) {
        const int other = sure && best != s->active;
        if (s->evaluated && !other && s->shares[s->active] >= TRELLIS_RELEASE) {
            s->below = 0;
            s->last = now;
            if (s->shares[s->active] > s->peak) s->peak = s->shares[s->active];
        } else if (++s->below >= TRELLIS_HOLD) {
            found = finished(s, now, event);
        }
    }
    if (s->active < 0 && s->count >= TRELLIS_HOLD &&
        !(s->candidate == s->ended_label && now - s->ended < TRELLIS_APART))
        begin(s, now, s->shares[best]);
    return found;
}

int trellis_stream_push(trellis_stream *s, const float *frame, trellis_event *event) {
    if (frame) {
        float units[TRELLIS_FRAME];
        for (uint32_t i = 0; i < TRELLIS_FRAME; i++) {
            units[i] = frame[i] * TRELLIS_FINER;
            if (!(units[i] <= TRELLIS_FARTHEST && units[i] >= -TRELLIS_FARTHEST)) return -1;
        }
        for (uint32_t i = 0; i < TRELLIS_FRAME; i++)
            s->units[i] = (uint32_t)(int32_t)(units[i] + (units[i] < 0.0f ? -0.5f : 0.5f));
        s->missing = 0;
    } else if (++s->missing > TRELLIS_GAP) {
        s->missing = TRELLIS_GAP + 1;
        s->seen = 0;
    }
    if (frame || s->seen) {
        const uint32_t *before = s->sums[s->at];
        s->at = (s->at + 1) % TRELLIS_RING;
        for (uint32_t i = 0; i < TRELLIS_FRAME; i++) s->sums[s->at][i] = before[i] + s->units[i];
        if (s->seen < TRELLIS_RING - 1) s->seen++;
    }
    if (++s->frames % TRELLIS_EVERY) return 0;
    evaluate(s);
    return decide(s, s->frames - 1, event);
}

int trellis_stream_end(trellis_stream *s, trellis_event *event) {
    return s->active >= 0 ? finished(s, s->frames - 1, event) : 0;
}
