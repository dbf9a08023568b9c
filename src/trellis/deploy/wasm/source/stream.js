
/** A stream of frames of a network that `openNetwork` opened; each network has one. */
function openStream({wasm, outputs}) {
  const floats = (at, count) => new Float32Array(wasm.memory.buffer, at, count);
  const width = wasm.frame();
  wasm.stream_begin();

  function told(found) {
    if (found < 0) throw new RangeError("a number that is not finite, or too far away");
    if (!found) return null;
    return {label: wasm.event_label(), start: wasm.event_start() >>> 0,
            end: wasm.event_end() >>> 0, probability: wasm.event_probability()};
  }

  return {
    /** Add x y z of each joint, or null where no skeleton was found. The gesture that is now over,
     * {label, start, end, probability}, or null. */
    push(frame) {
      if (frame) {
        if (frame.length !== width) throw new RangeError(`${frame.length} numbers, not ${width}`);
        floats(wasm.stream_frame(), width).set(frame);
      }
      return told(wasm.stream_push(frame ? 1 : 0));
    },
    /** End the stream: the gesture that was under way, or null. */
    close: () => told(wasm.stream_end()),
    begin: () => wasm.stream_begin(),
    /** The probability of each class at the last evaluation, or null. */
    get shares() {
      return wasm.stream_evaluated() ? Array.from(floats(wasm.stream_shares(), outputs)) : null;
    },
    /** The class of the gesture under way, or -1. */
    get active() { return wasm.stream_active(); },
    /** The bytes of memory that it takes. */
    get bytes() { return wasm.stream_bytes() >>> 0; },
  };
}
