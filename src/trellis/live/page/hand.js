// Drawings of a hand.
// @ts-check

const palette = () => {
  const style = getComputedStyle(document.documentElement);
  return [0, 1, 2, 3, 4, 5].map(i => style.getPropertyValue(`--b${i}`).trim());
};
let colours = palette();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { colours = palette(); });

/** Draw x y z of each joint, by a function from places to points. */
export function drawHand(pen, frame, {bones, branches}, at, width = 5, faint = false) {
  const colour = joint => faint ? "#ffffff77" : colours[branches[joint] % colours.length];
  const point = j => at(frame[3 * j], frame[3 * j + 1]);
  pen.lineCap = pen.lineJoin = "round";
  for (const [outline, wide] of [[true, width + 3], [false, width]])
    for (const [parent, joint] of bones) {
      if (outline && (faint || width < 3)) continue;
      const [x, y] = point(parent), [u, v] = point(joint);
      pen.strokeStyle = outline ? "#0009" : colour(joint);
      pen.lineWidth = wide;
      pen.beginPath(); pen.moveTo(x, y); pen.lineTo(u, v); pen.stroke();
    }
  if (width < 3) return;
  for (let j = 0; j < frame.length / 3; j++) {
    const [x, y] = point(j);
    pen.fillStyle = "#fff"; pen.strokeStyle = colour(j); pen.lineWidth = 2;
    pen.beginPath(); pen.arc(x, y, width * 0.75, 0, 7); pen.fill(); pen.stroke();
  }
}

/** From fractions of a 4:3 picture to an area, as a video lies in it. */
export function within(video, {width, height}) {
  const wide = video.videoWidth / video.videoHeight || 4 / 3;
  const h = Math.min(height, width / wide), w = h * 4 / 3;
  return (x, y) => [width / 2 + (x - 0.5) * w, (height - h) / 2 + y * h];
}

/** Make a canvas as sharp as the screen; its pen, width and height. */
export function cleared(canvas) {
  const ratio = devicePixelRatio || 1, {clientWidth: width, clientHeight: height} = canvas;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio); canvas.height = Math.round(height * ratio);
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  return {pen, width, height};
}

/** A clip as a small picture: the hand in the middle of it, and the way of its finger tips. */
export function thumbnail(canvas, frames, skeleton) {
  const {pen, width, height} = cleared(canvas);
  let low = [9, 9], high = [-9, -9];
  for (const frame of frames)
    for (let j = 0; j < frame.length; j += 3)
      for (const k of [0, 1]) {
        low[k] = Math.min(low[k], frame[j + k]); high[k] = Math.max(high[k], frame[j + k]);
      }
  const zoom = 0.86 * Math.min(width / ((high[0] - low[0]) * 4 / 3 || 1), height / (high[1] - low[1] || 1));
  const at = (x, y) => [width / 2 - zoom * 4 / 3 * (x - (low[0] + high[0]) / 2),
    height / 2 + zoom * (y - (low[1] + high[1]) / 2)];
  pen.strokeStyle = colours[2]; pen.globalAlpha = 0.55; pen.lineWidth = 1.2;
  for (const tip of [8, 20]) {
    pen.beginPath();
    frames.forEach((frame, t) => pen[t ? "lineTo" : "moveTo"](...at(frame[3 * tip], frame[3 * tip + 1])));
    pen.stroke();
  }
  pen.globalAlpha = 1;
  drawHand(pen, frames[frames.length >> 1], skeleton, at, 1.6);
}
