/* A network from the bytes of its model.wasm. This file may be used under any licence. */
async function openNetwork(bytes) {
  const {instance} = await WebAssembly.instantiate(bytes, {});
  const wasm = instance.exports, inputs = wasm.inputs(), outputs = wasm.outputs();
  const floats = (at, count) => new Float32Array(wasm.memory.buffer, at, count);
  wasm._initialize?.();

  /** The outputs, a Float32Array, for one input: `inputs` numbers, joint by joint. */
  function run(input) {
    if (input.length !== inputs) throw new RangeError(`${input.length} numbers, not ${inputs}`);
    floats(wasm.scratch(), inputs).set(input);
    return computed();
  }

  /** The outputs for a recording: x y z of each joint, frame after frame, in any length. */
  function recorded(recording, frames) {
    const count = frames * wasm.frame(), at = (wasm.free() + 15) & ~15;
    if (!(frames >= 1) || recording.length < count) throw new RangeError(`${frames} frames`);
    const missing = at + 4 * count - wasm.memory.buffer.byteLength;
    if (missing > 0) wasm.memory.grow(Math.ceil(missing / 65536));
    floats(at, count).set(recording.subarray(0, count));
    if (wasm.prepare(at, frames)) throw new RangeError(`${frames} frames`);
    return computed();
  }

  function computed() {
    if (wasm.run(wasm.scratch())) throw new RangeError("a number that is not finite");
    return floats(wasm.output(), outputs).slice();
  }

  /** How likely each class is, by such outputs: shares that sum to one. */
  function shares(output) {
    const top = Math.max(...output), grown = Array.from(output, value => Math.exp(value - top));
    const sum = grown.reduce((a, b) => a + b, 0);
    return grown.map(value => value / sum);
  }

  return {inputs, outputs, run, recorded, shares, wasm};
}
