// The camera, the hand detector, and frames at an even pace.
// @ts-check

const SIMD = [0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 10, 1, 8, 0, 65, 0,
  253, 15, 253, 98, 11];
const SHAPE = 4 / 3;  // places are fractions of a picture of this shape

/** Whether WebAssembly may use vectors, which the detector and exported networks need. */
export const hasSimd = () =>
  typeof WebAssembly === "object" && WebAssembly.validate(new Uint8Array(SIMD));

/** Show the camera in a video element. Throws {kind}: refused, none, busy, or unsupported. */
export async function openCamera(video) {
  if (!navigator.mediaDevices?.getUserMedia) throw {kind: "unsupported"};
  let stream;
  try {
    stream = await navigator.mediaDevices.getUserMedia({
      audio: false,
      video: {width: {ideal: 640}, height: {ideal: 480}, facingMode: "user", frameRate: {ideal: 30}},
    });
  } catch (error) {
    const kinds = {NotAllowedError: "refused", SecurityError: "refused", NotFoundError: "none",
      OverconstrainedError: "none", NotReadableError: "busy", AbortError: "busy"};
    throw {kind: kinds[error.name] ?? "busy", error};
  }
  video.srcObject = stream;
  await video.play();
  return stream;
}

function script(address) {
  return new Promise((loaded, failed) => {
    const made = document.createElement("script");
    made.src = address;
    made.onload = loaded;
    made.onerror = () => failed(new Error("the hand detector could not be loaded"));
    document.head.append(made);
  });
}

/** MediaPipe's hands, from this server. `found(hands)` gets x y z of each joint, for each hand. */
export async function openDetector(found) {
  await script("hands/hands.js");
  const hands = new window.Hands({locateFile: name => `hands/${name}`});
  hands.setOptions({maxNumHands: 2, modelComplexity: 0, useCpuInference: true,
    minDetectionConfidence: 0.6, minTrackingConfidence: 0.5});
  let shape = 1;
  hands.onResults(({multiHandLandmarks}) => found(distinct((multiHandLandmarks ?? []).map(joints => {
    const places = new Float32Array(63);
    joints.forEach(({x, y, z}, j) => {
      places[3 * j] = 0.5 + (x - 0.5) * shape;
      places[3 * j + 1] = y;
      places[3 * j + 2] = z * shape;
    });
    return places;
  }))));
  await hands.initialize();
  const detect = async video => {
    shape = video.videoWidth / video.videoHeight / SHAPE;
    await hands.send({image: video});
  };
  return Object.assign(detect, {reset: () => hands.reset()});
}

const apart = (a, b) => Math.hypot(a[27] - b[27], a[28] - b[28]);  // the middle of the palm
const size = a => Math.hypot(a[27] - a[0], a[28] - a[1]);

/** The hands without those that lie on another: the detector sees some hands twice. */
export const distinct = hands =>
  hands.filter((hand, i) => !hands.slice(0, i).some(other => apart(hand, other) < 0.8 * size(other)));

/** Which of the hands goes on from the last one: the nearest; else the largest. */
export function followed(hands, last) {
  const order = last ? (a, b) => apart(a, last) - apart(b, last) : (a, b) => size(b) - size(a);
  return [...hands].sort(order)[0] ?? null;
}

/** Detections at any time become frames at an even pace, interpolated between two of them. */
export class Pace {
  constructor(rate, bridged = 0.8) {
    Object.assign(this, {rate, bridged, time: null, frame: null});
  }

  /** Add a detection at a time in seconds, or null; the frames that are due by then. */
  add(time, frame) {
    const {time: before, frame: last, rate} = this;
    Object.assign(this, {time, frame});
    if (before === null || time <= before || time - before > 3) return [];
    const due = [];
    for (let tick = Math.floor(before * rate) + 1; tick / rate <= time; tick++) {
      const share = (tick / rate - before) / (time - before);
      const near = last && frame && time - before <= this.bridged;
      due.push(near ? frame.map((place, i) => last[i] + share * (place - last[i])) : null);
    }
    return due;
  }
}
